//! What is done for an image. Pure.

use agent_api::metal3::annotations::{DETACHED, PAUSED};
use agent_api::metal3::data_image::FINALIZER;
use agent_api::metal3::{BareMetalHost, DataImage};

use super::look::{Drive, attached, has_drive, installed, wanted};
use crate::operators::kit::Object as _;

/// What is done before Ironic is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing, until something changes.
    Rest,
    /// The image gets its finalizer, and the host as its owner.
    Hold,
    /// The finalizer goes.
    LetGo,
    /// The BMC cannot do it: the status says so.
    Unable,
    /// Ironic is asked.
    Look,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes.
    Rest,
    /// This image goes into the drive.
    Attach(String),
    /// What is in the drive goes out of it.
    Detach,
    /// The status says that this is in the drive, or nothing.
    Note(Option<String>),
    /// The drive was asked for this, and is not so.
    Failed,
    /// The finalizer goes.
    LetGo,
}

/// What was asked of Ironic, and not seen yet; forgotten with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To put this image in.
    Attach(String),
    /// To take out what is in.
    Detach,
}

/// Whether a host must not be powered on yet, since its drive is not as asked for.
pub fn holds_power(host: &BareMetalHost, image: &DataImage) -> bool {
    installed(host) && has_drive(host) && image.held_by(FINALIZER) && attached(image) != wanted(image)
}

/// What can be told without Ironic, which would ask the BMC. `asked`: Ironic is at it already.
pub fn before(image: &DataImage, host: Option<&BareMetalHost>, asked: bool) -> Before {
    let (held, leaves) = (image.held_by(FINALIZER), image.leaves());
    let Some(host) = host else { return if held { Before::LetGo } else { Before::Rest } };
    if host.annotation(PAUSED).is_some() || leaves && !held {
        return Before::Rest;
    }
    let mut owners = image.metadata.owner_references.iter().flatten();
    let owned = owners.any(|owner| Some(&owner.uid) == host.metadata.uid.as_ref());
    if !(leaves || held && owned) {
        return Before::Hold;
    }
    let detached = host.annotation(DETACHED).is_some();
    if leaves && (detached || !has_drive(host) || attached(image).is_none() && !asked) {
        return Before::LetGo;
    }
    if detached {
        return Before::Rest;
    }
    if !has_drive(host) {
        return Before::Unable;
    }
    let on = host.status.as_ref().is_some_and(|status| status.powered_on);
    let settled = if installed(host) { on || attached(image) == wanted(image) } else { attached(image).is_none() };
    if settled && !asked { Before::Rest } else { Before::Look }
}

/// What is to be done, now that Ironic is at work with nothing of the host.
pub fn decide(image: &DataImage, drive: Drive, asked: Option<&Asked>) -> Step {
    let (attached, wanted) = (attached(image), wanted(image));
    match asked {
        Some(Asked::Attach(url)) if drive.full => return Step::Note(Some(url.clone())),
        Some(Asked::Detach) if !drive.full => return Step::Note(None),
        Some(Asked::Attach(_) | Asked::Detach) => return Step::Failed,
        None => {}
    }
    if attached.is_some() && !drive.full {
        return Step::Note(None);
    }
    if image.leaves() && attached.is_none() {
        return Step::LetGo;
    }
    if !drive.installed || !drive.off || attached == wanted {
        return Step::Rest;
    }
    match (attached, wanted) {
        (None, Some(url)) => Step::Attach(url.to_owned()),
        (Some(_), _) | (None, None) => Step::Detach,
    }
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{BareMetalHost, DataImage};
    use serde_json::{Value, json};

    use super::{Asked, Before, Drive, Step, before, decide, holds_power};

    fn image(attached: Option<&str>, held: bool, leaves: bool) -> DataImage {
        let owner = json!([{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "a", "uid": "1"}]);
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "DataImage",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"url": "http://box/new.iso"}});
        if let Some(url) = attached {
            object["status"] = json!({"attachedImage": {"url": url}});
        }
        if held {
            object["metadata"]["finalizers"] = json!(["dataimage.metal3.io"]);
            object["metadata"]["ownerReferences"] = owner;
        }
        if leaves {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(object).expect("an image")
    }

    fn host(scheme: &str, state: &str, annotations: Value) -> BareMetalHost {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "a", "namespace": "n", "uid": "1"},
            "spec": {"online": true, "bmc": {"address": format!("{scheme}://10.0.0.1"), "credentialsName": "c"}},
            "status": {"operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": false,
                "provisioning": {"state": state, "ID": "u"}}});
        object["metadata"]["annotations"] = annotations;
        serde_json::from_value(object).expect("a host")
    }

    const NEW: Option<&str> = Some("http://box/new.iso");
    const OLD: Option<&str> = Some("http://box/old.iso");

    #[test]
    fn what_is_known_of_the_host_comes_before_its_drive() {
        let detached = Some(("redfish", "baremetalhost.metal3.io/detached"));
        let paused = Some(("redfish", "baremetalhost.metal3.io/paused"));
        let (redfish, ipmi) = (Some(("redfish", "other")), Some(("ipmi", "other")));
        for (held, leaves, its, expected) in [
            (false, false, None, Before::Rest),
            (true, false, None, Before::LetGo),
            (true, true, None, Before::LetGo),
            (false, false, redfish, Before::Hold),
            (false, true, redfish, Before::Rest),
            (true, false, redfish, Before::Look),
            (true, true, redfish, Before::LetGo),
            (true, true, paused, Before::Rest),
            (true, false, detached, Before::Rest),
            (true, true, detached, Before::LetGo),
            (true, false, ipmi, Before::Unable),
            (true, true, ipmi, Before::LetGo),
        ] {
            let host = its.map(|(scheme, annotation)| host(scheme, "provisioned", json!({annotation: ""})));
            let found = before(&image(None, held, leaves), host.as_ref(), false);
            assert_eq!(found, expected, "held {held}, leaves {leaves}, {its:?}");
        }
    }

    #[test]
    fn ironic_is_asked_only_where_something_is_to_be_done() {
        let (on, off) = (true, false);
        for (attached, leaves, state, powered, asked, expected) in [
            (NEW, false, "provisioned", off, false, Before::Rest),
            (OLD, false, "provisioned", off, false, Before::Look),
            (OLD, false, "provisioned", on, false, Before::Rest),
            (OLD, false, "provisioned", on, true, Before::Look),
            (None, false, "available", off, false, Before::Rest),
            (NEW, false, "available", off, false, Before::Look),
            (NEW, true, "provisioned", off, false, Before::Look),
            (NEW, true, "provisioned", on, false, Before::Rest),
            (None, true, "provisioned", on, true, Before::Look),
        ] {
            let mut host = host("redfish", state, json!({}));
            host.status.as_mut().expect("a status").powered_on = powered;
            let found = before(&image(attached, true, leaves), Some(&host), asked);
            assert_eq!(found, expected, "{attached:?}, leaves {leaves}, {state}, on {powered}, asked {asked}");
        }
    }

    #[test]
    fn the_drive_changes_only_while_a_provisioned_host_is_off() {
        let attach = || Step::Attach("http://box/new.iso".to_owned());
        let drive = |full, off, installed| Drive { full, off, installed };
        for (attached, leaves, drive, step) in [
            (None, false, drive(false, true, true), attach()),
            // What somebody else left in it is replaced.
            (None, false, drive(true, true, true), attach()),
            (None, false, drive(false, false, true), Step::Rest),
            (None, false, drive(false, true, false), Step::Rest),
            (NEW, false, drive(true, true, true), Step::Rest),
            (NEW, false, drive(false, false, true), Step::Note(None)),
            (OLD, false, drive(true, true, true), Step::Detach),
            (OLD, false, drive(true, false, true), Step::Rest),
            (NEW, true, drive(true, true, true), Step::Detach),
            (NEW, true, drive(true, false, true), Step::Rest),
            (NEW, true, drive(true, true, false), Step::Rest),
            (NEW, true, drive(false, false, false), Step::Note(None)),
            (None, true, drive(true, false, true), Step::LetGo),
            (None, true, drive(false, true, true), Step::LetGo),
        ] {
            assert_eq!(decide(&image(attached, true, leaves), drive, None), step, "{attached:?}, {leaves}, {drive:?}");
        }
    }

    #[test]
    fn what_was_asked_for_is_seen_or_it_failed() {
        let drive = |full| Drive { full, off: true, installed: true };
        let attach = Asked::Attach("http://box/new.iso".to_owned());
        let decided = |full, asked| decide(&image(None, true, false), drive(full), Some(asked));
        assert_eq!(decided(true, &attach), Step::Note(NEW.map(str::to_owned)));
        assert_eq!(decided(false, &attach), Step::Failed);
        assert_eq!(decided(false, &Asked::Detach), Step::Note(None));
        assert_eq!(decided(true, &Asked::Detach), Step::Failed);
    }

    #[test]
    fn power_waits_for_the_drive_where_there_is_one() {
        let holds = |scheme: &str, state: &str, image: DataImage| holds_power(&host(scheme, state, json!({})), &image);
        assert!(holds("redfish", "provisioned", image(None, true, false)));
        assert!(holds("redfish", "externally provisioned", image(OLD, true, false)));
        assert!(holds("redfish", "provisioned", image(NEW, true, true)));
        assert!(!holds("redfish", "provisioned", image(NEW, true, false)));
        assert!(!holds("redfish", "provisioned", image(None, true, true)));
        assert!(!holds("redfish", "available", image(None, true, false)));
        assert!(!holds("ipmi", "provisioned", image(None, true, false)));
    }
}
