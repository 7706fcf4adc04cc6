//! `BareMetalSwitch` and `HostNetworkAttachment`: ports of switches, which the box does not set up. A condition says so.

use agent_api::metal3::{BareMetalSwitch, Condition, HostNetworkAttachment};
use jiff::Timestamp;
use serde_json::json;

use super::common::Common;
use crate::operators::kit::conditions::merge;
use crate::operators::kit::{NewCondition, Next, Object, ObjectError, Turn};

/// Condition of metal3's operator: the object is made use of.
const VALID: &str = "Valid";
/// Why it is not.
const REASON: &str = "NotSupported";

/// An object with conditions.
trait Unsupported: Object {
    /// What is said of it.
    const MESSAGE: &str;

    fn conditions(&self) -> Option<&Vec<Condition>>;
}

impl Unsupported for BareMetalSwitch {
    const MESSAGE: &str = "not supported: the box does not set up switches; hint: set up the hosts' ports by hand";

    fn conditions(&self) -> Option<&Vec<Condition>> {
        self.status.as_ref()?.conditions.as_ref()
    }
}

impl Unsupported for HostNetworkAttachment {
    const MESSAGE: &str =
        "not supported: the box does not set up ports of switches; hint: set up the hosts' ports by hand";

    fn conditions(&self) -> Option<&Vec<Condition>> {
        self.status.as_ref()?.conditions.as_ref()
    }
}

struct Controller<K> {
    common: Common,
    kind: std::marker::PhantomData<fn(K)>,
}

impl<K: Unsupported> Turn for Controller<K> {
    type Kind = K;

    async fn turn(&self, object: K) -> Result<Next, ObjectError> {
        if let Some(conditions) = refusal(&object, Timestamp::now()) {
            self.common.base.objects.merge_status(&object, json!({"conditions": conditions})).await?;
        }
        Ok(Next::await_change())
    }
}

/// All conditions with the one that refuses the object; nothing when it is there already.
fn refusal<K: Unsupported>(object: &K, now: Timestamp) -> Option<Vec<Condition>> {
    let before = object.conditions();
    let condition = NewCondition {
        kind: VALID,
        holds: false,
        reason: REASON,
        message: K::MESSAGE.to_owned(),
        generation: object.meta().generation,
    };
    let all = merge(before, [condition], now);
    (before != Some(&all)).then_some(all)
}

async fn one<K: Unsupported>(common: Common) {
    let (store, changed) = common.base.changed::<K>();
    let controller = Controller { common: common.clone(), kind: std::marker::PhantomData };
    common.run(controller, store, vec![changed]).await;
}

/// Runs the controllers of both kinds.
pub async fn run(common: Common) {
    tokio::join!(one::<BareMetalSwitch>(common.clone()), one::<HostNetworkAttachment>(common));
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{BareMetalSwitch, BareMetalSwitchStatus, ConditionStatus};
    use jiff::Timestamp;

    use super::refusal;

    #[test]
    fn a_switch_is_refused_once_and_again_when_it_changes() {
        let mut switch = BareMetalSwitch::new("s", agent_api::metal3::BareMetalSwitchSpec::default());
        switch.metadata.generation = Some(1);
        let conditions = refusal(&switch, Timestamp::UNIX_EPOCH).expect("refused");
        assert_eq!((conditions[0].kind.as_str(), conditions[0].status), ("Valid", ConditionStatus::False));
        assert!(conditions[0].message.contains("not supported"));
        switch.status = Some(BareMetalSwitchStatus { conditions: Some(conditions) });
        assert_eq!(refusal(&switch, Timestamp::now()), None);
        switch.metadata.generation = Some(2);
        let again = refusal(&switch, Timestamp::now()).expect("told anew");
        assert_eq!(again[0].last_transition_time.0, Timestamp::UNIX_EPOCH, "nothing but the spec changed");
    }
}
