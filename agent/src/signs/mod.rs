//! Signs of life of servers that are provisioned, and what follows from them: where a server stands on its way, what is
//! waited for next, and until when.
//!
//! ```text
//! guard of DHCP ─ signs.json ─┐
//! dnsmasq ─ leases ───────────┼─► Table ─┬─ /run/foothold/hosts/signs.json ─► Reader (controller) ─┐
//! content server ─ Fetches ───┘          └────────────────────── rest ─────────────────────────────┤
//! Ironic ─ Node ─► node ───────────────────────────────────────────────────────────────────────────┴─► Seen ─► stage
//! ```
//! [`stage()`] is pure. It only moves forward while a server boots, so that telling it takes few words and few writes.

use agent_api::metal3::{BareMetalHost, OperationMetric, ProvisioningState};
use jiff::{SignedDuration, Timestamp};

use crate::ironic::Node;

pub mod keep;
mod lost;
pub mod node;
mod stage;
mod table;

pub use keep::Reader;
pub use lost::SILENCE;
pub use stage::{Next, Seen, Stage, stage};
pub use table::Table;

/// Where a host stands, by its node and what the box has seen of it; `table` is `None` where the box does not look.
pub fn look(host: &BareMetalHost, node: &Node, table: Option<&Table>, now: Timestamp) -> Option<Stage> {
    with(host, node, table, now, stage)
}

/// Whether a host is waited for in vain: powered on before the box began to listen, and silent for so long since.
pub fn is_lost(
    host: &BareMetalHost,
    node: &Node,
    table: Option<&Table>,
    now: Timestamp,
    (since, silence): (Timestamp, SignedDuration),
) -> bool {
    with(host, node, table, now, |seen| lost::is_lost(seen, since, silence))
}

fn with<T>(
    host: &BareMetalHost,
    node: &Node,
    table: Option<&Table>,
    now: Timestamp,
    judge: impl FnOnce(&Seen<'_>) -> T,
) -> T {
    let agent = node::ramdisk(node).and_then(|ramdisk| ramdisk.url);
    let dhcp = table.and_then(|table| table.dhcp_of(host));
    let http = table.and_then(|table| table.http_of(host, agent.as_deref()));
    let (dhcp, http, listened) = (dhcp.as_ref(), http.as_ref(), table.is_some());
    judge(&Seen { node, listened, dhcp, http, began: began(host), now })
}

/// When what is done with a host now began, as its status has it.
pub fn began(host: &BareMetalHost) -> Option<Timestamp> {
    let status = host.status.as_ref()?;
    let history = status.operation_history.as_ref()?;
    let metric: Option<&OperationMetric> = match host.state() {
        ProvisioningState::Registering => history.register.as_ref(),
        ProvisioningState::Inspecting => history.inspect.as_ref(),
        ProvisioningState::Provisioning => history.provision.as_ref(),
        ProvisioningState::Deprovisioning => history.deprovision.as_ref(),
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => None,
    };
    Some(metric?.start.as_ref()?.0?.0)
}
