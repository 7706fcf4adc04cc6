//! Does what was decided for a subscription.

use std::time::Duration;

use agent_api::metal3::BmcEventSubscription;
use agent_api::metal3::bmc_event_subscription::FINALIZER;
use kube::runtime::controller::Action as Next;
use kube::runtime::reflector::ObjectRef;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Host, Step, decide, known, registered};
use crate::ironic::IronicError;
use crate::operators::baremetalhost::objects::ObjectError;
use crate::operators::turns::{Common, Failures, Key, Object as _, Turn};

/// Until Ironic is asked again that was away, or did not know the host.
const IRONIC: Duration = Duration::from_secs(30);

struct Controller {
    common: Common,
    failures: Failures,
}

/// Runs the controller of subscriptions.
pub async fn run(common: Common) {
    let (store, changed) = common.changed::<BmcEventSubscription>();
    let all = store.clone();
    let of_hosts = common.of_hosts(move |(namespace, name)| {
        let theirs = all.state_filter(|one: &BmcEventSubscription| {
            one.metadata.namespace.as_ref() == Some(namespace) && one.spec.host_name.as_ref() == Some(name)
        });
        // One that is there needs nothing of its host until it is to go.
        let open = theirs
            .iter()
            .filter(|one| one.leaves() || one.status.as_ref().is_none_or(|status| status.subscription_id.is_none()));
        open.map(|one| ObjectRef::from_obj(&**one)).collect()
    });
    let controller = Controller { common: common.clone(), failures: Failures::default() };
    common.run(controller, store, vec![changed, of_hosts]).await;
}

impl Turn for Controller {
    type Kind = BmcEventSubscription;

    async fn turn(&self, subscription: BmcEventSubscription) -> Result<Next, ObjectError> {
        let key = subscription.key();
        let host = match self.look(&subscription).await? {
            Ok(host) => host,
            Err(error) => {
                log::debug!("BMCEventSubscription `{}/{}`: {error}", key.0, key.1);
                return Ok(Next::requeue(IRONIC));
            }
        };
        match decide(&subscription, &host) {
            Step::Rest => Ok(self.rests(&key)),
            Step::Wait => Ok(Next::requeue(IRONIC)),
            // The change of it is the next turn.
            Step::Hold => {
                self.common.set_finalizer(&subscription, FINALIZER, true).await?;
                Ok(Next::await_change())
            }
            Step::LetGo => {
                self.common.set_finalizer(&subscription, FINALIZER, false).await?;
                Ok(self.rests(&key))
            }
            Step::Tell(why) => {
                self.tell(&subscription, &why).await?;
                Ok(self.rests(&key))
            }
            Step::Create(_) | Step::Remove { .. } if let Some(left) = self.failures.left(&subscription) => {
                Ok(Next::requeue(left))
            }
            Step::Create(node) => self.create(&subscription, &node).await,
            Step::Remove { node, id } => self.remove(&subscription, &node, &id).await,
        }
    }
}

impl Controller {
    /// It waits for others.
    fn rests(&self, key: &Key) -> Next {
        self.failures.none(key);
        Next::await_change()
    }

    async fn look(&self, subscription: &BmcEventSubscription) -> Result<Result<Host, IronicError>, ObjectError> {
        let name = subscription.spec.host_name.as_deref().unwrap_or_default();
        let host = match name {
            "" => None,
            name => self.common.objects.host(&subscription.key().0, name).await?,
        };
        if let Some(known) = known(host.as_ref()) {
            return Ok(Ok(known));
        }
        let Some(host) = host else { return Ok(Ok(Host::Gone)) };
        Ok(self.common.node(&host).await.map(|node| registered(node.as_ref())))
    }

    /// The status says why, once.
    async fn tell(&self, subscription: &BmcEventSubscription, why: &str) -> Result<(), ObjectError> {
        let told = subscription.status.as_ref().and_then(|status| status.error.as_deref());
        if told != Some(why) {
            self.common.merge_status(subscription, json!({"error": why})).await?;
        }
        Ok(())
    }

    async fn failed(
        &self,
        subscription: &BmcEventSubscription,
        what: &str,
        error: &IronicError,
    ) -> Result<Next, ObjectError> {
        if matches!(error, IronicError::Busy(_)) {
            return Ok(Next::requeue(self.common.pace.short));
        }
        self.refused(subscription, &format!("failed to {what} a subscription: {error}")).await
    }

    async fn refused(&self, subscription: &BmcEventSubscription, why: &str) -> Result<Next, ObjectError> {
        self.tell(subscription, why).await?;
        Ok(Next::requeue(self.failures.one_more(subscription)))
    }

    async fn create(&self, subscription: &BmcEventSubscription, node: &str) -> Result<Next, ObjectError> {
        let mut body = json!({"Destination": subscription.spec.destination.clone().unwrap_or_default()});
        if let Some(context) = &subscription.spec.context {
            body["Context"] = json!(context);
        }
        match self.headers(subscription).await? {
            Ok(headers) if headers.is_empty() => {}
            Ok(headers) => body["HttpHeaders"] = json!(headers),
            Err(why) => return self.refused(subscription, &why).await,
        }
        let made = self.common.ironic.vendor_passthru(node, "create_subscription", Method::POST, Some(&body)).await;
        let answer = match made {
            Ok(answer) => answer,
            Err(error) => return self.failed(subscription, "create", &error).await,
        };
        let id = answer.as_ref().and_then(|answer| answer["Id"].as_str()).unwrap_or_default();
        if id.is_empty() {
            return self.refused(subscription, "failed to create a subscription: the BMC gives it no `Id`").await;
        }
        // Whatever else was changed meanwhile: without its name it could never be removed.
        self.common.merge_status(subscription, json!({"subscriptionID": id, "error": null})).await?;
        Ok(self.rests(&subscription.key()))
    }

    /// HTTP headers as Redfish wants them: one object each.
    async fn headers(&self, subscription: &BmcEventSubscription) -> Result<Result<Vec<Value>, String>, ObjectError> {
        let namespace = subscription.key().0;
        let Some(reference) = &subscription.spec.http_headers_ref else { return Ok(Ok(Vec::new())) };
        let name = reference.name.as_deref().unwrap_or_default();
        if reference.namespace.as_ref().is_some_and(|other| !other.is_empty() && *other != namespace) {
            return Ok(Err("the Secret of `httpHeadersRef` must be in the subscription's namespace".to_owned()));
        }
        let Some(secret) = self.common.objects.secret(&namespace, name).await? else {
            return Ok(Err(format!("the Secret `{namespace}/{name}` with HTTP headers does not exist")));
        };
        let one = |(header, value): (String, k8s_openapi::ByteString)| {
            let text = String::from_utf8(value.0);
            let text = text.map_err(|_| format!("the HTTP header `{header}` of the Secret `{name}` is no text"))?;
            Ok(json!({header: text}))
        };
        Ok(secret.data.unwrap_or_default().into_iter().map(one).collect())
    }

    async fn remove(&self, subscription: &BmcEventSubscription, node: &str, id: &str) -> Result<Next, ObjectError> {
        let body = json!({"id": id});
        let removed =
            self.common.ironic.vendor_passthru(node, "delete_subscription", Method::DELETE, Some(&body)).await;
        match removed {
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return self.failed(subscription, "delete", &error).await,
        }
        self.common.set_finalizer(subscription, FINALIZER, false).await?;
        Ok(self.rests(&subscription.key()))
    }
}

/// Ironic answers 404 whatever went wrong with the BMC: only the BMC's own 404 says that the subscription is gone
/// (sushy's `ResourceNotFoundError`).
fn is_gone(error: &IronicError) -> bool {
    match error {
        IronicError::NotFound(message) => message.contains("code 404") || message.contains("ResourceNotFound"),
        IronicError::Client(_)
        | IronicError::Away { .. }
        | IronicError::Versions { .. }
        | IronicError::Busy(_)
        | IronicError::Taken(_)
        | IronicError::Refused { .. }
        | IronicError::Form { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_gone;
    use crate::ironic::IronicError;

    #[test]
    fn only_the_bmcs_own_404_means_that_a_subscription_is_gone() {
        let answer = |error: &str| IronicError::NotFound(format!("Redfish delete_subscription failed. Error: {error}"));
        assert!(is_gone(&answer("HTTP GET https://bmc/redfish/v1/EventService/Subscriptions/7 returned code 404.")));
        assert!(!is_gone(&answer("Unable to connect to https://bmc/redfish/v1/.")));
        assert!(!is_gone(&IronicError::Busy("returned code 404".to_owned())));
    }
}
