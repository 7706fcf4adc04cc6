//! Rules of the other kinds.

use super::super::{
    BareMetalHost, BmcEventSubscription, DataImage, HostFirmwareComponents, HostNetworkAttachment, SwitchPortMode,
};
use super::{FILE_SCHEMES, fetchable};
use crate::metal3::go_url::{self, quoted};

/// What speaks against an ISO image.
pub fn data_image(image: &DataImage) -> Vec<String> {
    let url = &image.spec.url;
    fetchable(url, &FILE_SCHEMES)
        .err()
        .map(|problem| format!("URL \"{url}\" is invalid: {problem}"))
        .into_iter()
        .collect()
}

/// What speaks against firmware updates.
pub fn firmware_components(components: &HostFirmwareComponents) -> Vec<String> {
    let told = |update: &super::super::FirmwareUpdate| {
        let problem = fetchable(&update.url, &FILE_SCHEMES).err()?;
        let (url, component) = (&update.url, &update.component);
        Some(format!("invalid URL \"{url}\" in FirmwareUpdate in component \"{component}\": {problem}"))
    };
    components.spec.updates.iter().filter_map(told).collect()
}

/// What speaks against a new subscription.
pub fn event_subscription_create(subscription: &BmcEventSubscription) -> Vec<String> {
    let mut problems = Vec::new();
    let spec = &subscription.spec;
    if spec.host_name.as_ref().is_none_or(String::is_empty) {
        problems.push("hostName cannot be empty".into());
    }
    if let Some(headers) = &spec.http_headers_ref
        && headers.namespace.as_deref().unwrap_or_default()
            != subscription.metadata.namespace.as_deref().unwrap_or_default()
    {
        problems.push("httpHeadersRef secret must be in the same namespace as the BMCEventSubscription".into());
    }
    match spec.destination.as_deref().unwrap_or_default() {
        "" => problems.push("destination cannot be empty".into()),
        destination => match go_url::parse_request(destination) {
            Err(problem) => problems.push(format!("destination is invalid: {problem}")),
            Ok(url) if url.path.is_empty() => {
                problems.push("hostname-only destination must have a trailing slash".into());
            }
            Ok(_) => {}
        },
    }
    problems
}

/// What speaks against a change of a subscription: any change of its spec.
pub fn event_subscription_update(old: &BmcEventSubscription, new: &BmcEventSubscription) -> Vec<String> {
    if old.spec == new.spec { Vec::new() } else { vec!["subscriptions cannot be updated, please recreate it".into()] }
}

/// What speaks against a new attachment.
pub fn network_attachment_create(attachment: &HostNetworkAttachment) -> Vec<String> {
    let mut problems = Vec::new();
    let vlans = attachment.spec.allowed_vlans.as_deref().unwrap_or_default();
    if attachment.spec.mode == SwitchPortMode::Access && !vlans.is_empty() {
        problems.push("allowedVLANs cannot be specified for access mode".into());
    }
    for (index, vlan) in vlans.iter().enumerate() {
        if let Err(problem) = vlans_of(&vlan.0) {
            problems.push(format!("allowedVLANs[{index}] {}: {problem}", quoted(&vlan.0)));
        }
    }
    problems
}

/// What speaks against a change of an attachment: `hosts` are all that might refer to it.
pub fn network_attachment_update(
    old: &HostNetworkAttachment,
    new: &HostNetworkAttachment,
    hosts: &[BareMetalHost],
) -> Vec<String> {
    if old.spec == new.spec {
        return Vec::new();
    }
    let problems = network_attachment_create(new);
    if !problems.is_empty() {
        return problems;
    }
    let references = references(old, hosts);
    if references.is_empty() {
        return problems;
    }
    vec![format!(
        "HostNetworkAttachment spec is immutable while referenced by BMH interfaces: {}",
        references.join(", ")
    )]
}

/// What speaks against the end of an attachment: `hosts` are all that might refer to it.
pub fn network_attachment_delete(attachment: &HostNetworkAttachment, hosts: &[BareMetalHost]) -> Vec<String> {
    let references = references(attachment, hosts);
    if references.is_empty() {
        return Vec::new();
    }
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    vec![format!(
        "hostnetworkattachments.metal3.io \"{name}\" is forbidden: cannot delete attachment while referenced by BMH interfaces: {}",
        references.join(", ")
    )]
}

/// Interfaces of hosts that refer to an attachment: `namespace/host[interface]`.
fn references(attachment: &HostNetworkAttachment, hosts: &[BareMetalHost]) -> Vec<String> {
    let (name, namespace) = (&attachment.metadata.name, attachment.metadata.namespace.as_deref().unwrap_or_default());
    let mut found = Vec::new();
    for host in hosts {
        let own = host.metadata.namespace.as_deref().unwrap_or_default();
        for interface in host.spec.network_interfaces.iter().flatten() {
            let meant = &interface.host_network_attachment;
            let its = meant.namespace.as_deref().filter(|its| !its.is_empty()).unwrap_or(own);
            if Some(&meant.name) == name.as_ref() && its == namespace {
                let id = interface.name.as_deref().filter(|name| !name.is_empty());
                let id = id.or(interface.mac_address.as_deref()).unwrap_or_default();
                found.push(format!("{own}/{}[{id}]", host.metadata.name.as_deref().unwrap_or_default()));
            }
        }
    }
    found
}

/// First and last VLAN of `100` or `100-200`.
fn vlans_of(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| {
        // Go's `strconv.Atoi`, which also takes a sign.
        text.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quoted(text)))
    };
    let in_range = |number: i64| {
        let vlan = u16::try_from(number).ok().filter(|vlan| (1..=4094).contains(vlan));
        vlan.ok_or_else(|| format!("VLAN ID {number} out of range 1-4094"))
    };
    let (first, last) = text.split_once('-').map_or((text, None), |(first, last)| (first, Some(last)));
    let first = in_range(number(first).map_err(|problem| format!("invalid VLAN ID: {problem}"))?)?;
    let Some(last) = last else { return Ok((first, first)) };
    let last = in_range(number(last).map_err(|problem| format!("invalid range end: {problem}"))?)?;
    if first >= last {
        return Err(format!("range start ({first}) must be less than end ({last})"));
    }
    Ok((first, last))
}
