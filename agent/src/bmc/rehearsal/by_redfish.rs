//! The questions to a Redfish service, in order.

use std::time::Duration;

use agent_api::rehearsal::{Cell, Check};
use jiff::Timestamp;
use serde_json::Value;

use super::super::redfish::{Answer, link, members, systems};
use super::{Redfish, RedfishError, Row, Way, judge};

/// Most chassis of a system that are looked at: a blade, its sled, its enclosure.
const CHASSIS: usize = 4;

/// Asks all there is to ask, and writes down what comes of it as it goes.
pub(super) async fn ask(row: &mut Row, redfish: &Redfish, known: bool, system: Option<&str>, way: Way) {
    let root = match redfish.root().await {
        Ok(root) => root.body,
        // Some want credentials even for this: then somebody is there.
        Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403)) => Value::Null,
        Err(error) => return row.set(Check::Reach, judge::unreached(&error)),
    };
    row.vendor = text(&root, "Vendor");
    row.product = text(&root, "Product");
    row.set(Check::Reach, judge::reach("Redfish", redfish.count()));
    if !known {
        return;
    }
    let refused = redfish.open(&root).await.err();
    let systems = match redfish.get(&systems(&root)).await {
        Ok(systems) => systems.body,
        Err(error) => return row.set(Check::Credentials, judge::closed(&error, refused.as_ref())),
    };
    row.set(Check::Credentials, judge::let_in(refused.as_ref()));
    let system = match find(redfish, &systems, system).await {
        Ok(system) => system,
        Err(cell) => return row.set(Check::Power, cell),
    };
    row.vendor = row.vendor.take().or_else(|| text(&system, "Manufacturer"));
    row.product = row.product.take().or_else(|| text(&system, "Model"));
    row.set(Check::Boot, judge::boot(&system, way));
    let bosses = managers(&system);
    let first = bosses.as_ref().and_then(|paths| paths.first().cloned());
    let manager = follow(redfish, first, link(&root, "Managers")).await;
    let version = manager.as_ref().and_then(|manager| text(manager, "FirmwareVersion"));
    let media = match row.vendor.as_deref() {
        _ if way.is_media() && bosses.is_none() => judge::media_of_no_manager(),
        Some(vendor)
            if way == Way::VirtualMedia && vendor.contains("Dell") && judge::is_old_idrac(version.as_deref()) =>
        {
            judge::media_of_another_way()
        }
        _ => media(redfish, &system, manager.as_ref(), way).await,
    };
    row.set(Check::Media, media);
    row.set(Check::Clock, clock(redfish, manager.as_ref()).await);
    row.set(Check::Firmware, firmware(redfish, &root, &system, manager.as_ref()).await);
    let chassis = own_chassis(redfish, &system).await;
    let again = match link(&system, "") {
        Some(path) => redfish.get(&path).await.ok().map(|answer| answer.body),
        None => None,
    };
    row.set(Check::Power, judge::power(&system, chassis.as_ref(), again.as_ref()));
}

/// The system that the address names, or the only one.
async fn find(redfish: &Redfish, systems: &Value, named: Option<&str>) -> Result<Value, Cell> {
    let members = members(systems);
    let path = match (named, members.as_slice()) {
        (Some(path), _) => path.to_owned(),
        (None, [only]) => only.clone(),
        (None, []) => return Err(Cell::bad("the BMC shows no system", "wait until it is up; restart the BMC")),
        (None, several) => {
            let says = format!("the BMC has {} systems: {}", several.len(), several.join(", "));
            return Err(Cell::bad(says, "put the path of one of them behind the host in `spec.bmc.address`"));
        }
    };
    match redfish.get(&path).await {
        Ok(answer) => match judge::no_system(&path, &answer.body, &members) {
            None => Ok(answer.body),
            Some(cell) => Err(cell),
        },
        Err(error) if error.status().is_some_and(|status| status.as_u16() == 404) => {
            let says = format!("there is no system at `{path}`");
            Err(Cell::bad(says, format!("`spec.bmc.address` may name: {}", members.join(", "))))
        }
        Err(error) => Err(judge::unread(&error)),
    }
}

/// Who manages a system, where sushy looks for it (`System.managers`): a list that is empty, or one with a member that
/// leads nowhere, is none. Without it Ironic has no virtual media.
fn managers(system: &Value) -> Option<Vec<String>> {
    let links = ["ManagedBy", "Managers"].into_iter().map(|name| system["Links"][name].as_array());
    let paths = |links: &Vec<Value>| links.iter().map(|one| link(one, "")).collect::<Option<Vec<String>>>();
    links.flatten().filter_map(paths).find(|paths| !paths.is_empty())
}

/// The chassis that is this system's and nobody else's.
async fn own_chassis(redfish: &Redfish, system: &Value) -> Option<Value> {
    let own = link(system, "")?;
    let links = system["Links"]["Chassis"].as_array()?;
    for path in links.iter().filter_map(|one| link(one, "")).take(CHASSIS) {
        let found = redfish.get(&path).await.ok().map(|answer| answer.body);
        if let Some(chassis) = found.filter(|chassis| judge::is_chassis_of(chassis, &own)) {
            return Some(chassis);
        }
    }
    None
}

/// What a link leads to, or the first of a collection.
async fn follow(redfish: &Redfish, path: Option<String>, collection: Option<String>) -> Option<Value> {
    let path = match path {
        Some(path) => path,
        None => members(&redfish.get(&collection?).await.ok()?.body).into_iter().next()?,
    };
    redfish.get(&path).await.ok().map(|answer| answer.body)
}

async fn media(redfish: &Redfish, system: &Value, manager: Option<&Value>, way: Way) -> Cell {
    let mut failed: Option<RedfishError> = None;
    let mut drives = Vec::new();
    let collections = [link(system, "VirtualMedia"), manager.and_then(|manager| link(manager, "VirtualMedia"))];
    for collection in collections.into_iter().flatten() {
        match all(redfish, &collection).await {
            Ok(found) => drives.extend(found),
            Err(error) => failed = Some(error),
        }
        // The system's own come first: a BMC with both means the same drives.
        if !drives.is_empty() {
            break;
        }
    }
    match failed {
        Some(error) if drives.is_empty() && way.is_media() => judge::unread(&error),
        _ => judge::media(&drives, way),
    }
}

/// The manager's clock, or what its HTTP server says.
async fn clock(redfish: &Redfish, manager: Option<&Value>) -> Cell {
    let path = manager.and_then(|manager| link(manager, "")).unwrap_or_else(|| "/redfish/v1/".to_owned());
    let answer = match redfish.get(&path).await {
        Ok(answer) => answer,
        Err(error) => return judge::unread(&error),
    };
    let Answer { body, date, took } = answer;
    // It was told somewhere between question and answer.
    let half = Duration::from_secs_f64(took.as_secs_f64() / 2.0);
    let ours = Timestamp::now().checked_sub(half).unwrap_or_else(|_| Timestamp::now());
    if let Some(theirs) = body["DateTime"].as_str().and_then(|text| text.parse().ok()) {
        return judge::clock(theirs, ours, "");
    }
    let date = date.and_then(|date| jiff::fmt::rfc2822::parse(&date).ok());
    date.map_or_else(judge::no_clock, |date| judge::clock(date.timestamp(), ours, ", by its HTTP server"))
}

async fn firmware(redfish: &Redfish, root: &Value, system: &Value, manager: Option<&Value>) -> Cell {
    let mut versions = Vec::new();
    if let Some(version) = manager.and_then(|manager| text(manager, "FirmwareVersion")) {
        versions.push(("BMC".to_owned(), version));
    }
    if let Some(version) = text(system, "BiosVersion") {
        versions.push(("BIOS".to_owned(), version));
    }
    if versions.len() < 2
        && let Some(service) = link(root, "UpdateService")
        && let Ok(service) = redfish.get(&service).await
        && let Some(inventory) = link(&service.body, "FirmwareInventory")
        && let Ok(entries) = all(redfish, &inventory).await
    {
        let known = |entry: &Value| Some((text(entry, "Name")?, text(entry, "Version")?));
        versions.extend(entries.iter().filter_map(known).filter(|(_, version)| {
            // BMC or BIOS, told already.
            manager.and_then(|manager| text(manager, "FirmwareVersion")).is_none_or(|told| told != *version)
                && text(system, "BiosVersion").is_none_or(|told| told != *version)
        }));
    }
    judge::firmware(&versions)
}

/// All members of a collection, as far as they can be read.
async fn all(redfish: &Redfish, collection: &str) -> Result<Vec<Value>, RedfishError> {
    let mut found = Vec::new();
    for path in members(&redfish.get(collection).await?.body) {
        match redfish.get(&path).await {
            Ok(answer) => found.push(answer.body),
            Err(error) if error.is_final() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

fn text(document: &Value, property: &str) -> Option<String> {
    document[property].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::managers;

    #[test]
    fn managers_are_found_where_sushy_finds_them() {
        let (one, two) =
            (json!({ "@odata.id": "/redfish/v1/Managers/1" }), json!({ "@odata.id": "/redfish/v1/Managers/2" }));
        let (first, second) = (Some("/redfish/v1/Managers/1"), Some("/redfish/v1/Managers/2"));
        let table: [(Value, Option<&str>); 9] = [
            (json!({ "ManagedBy": [one] }), first),
            (json!({ "ManagedBy": [two, one], "Managers": [one] }), second),
            (json!({ "Managers": [one] }), first),
            (json!({ "ManagedBy": [], "Managers": [two] }), second),
            (json!({ "ManagedBy": null, "Managers": [two] }), second),
            (json!({ "ManagedBy": [one, {}], "Managers": [two] }), second),
            (json!({ "ManagedBy": [] }), None),
            (json!({ "ManagedBy": [{}], "Managers": [] }), None),
            (json!({}), None),
        ];
        for (links, expected) in table {
            let found = managers(&json!({ "Links": links }));
            assert_eq!(found.as_ref().map(|paths| paths[0].as_str()), expected, "{links}");
        }
    }
}
