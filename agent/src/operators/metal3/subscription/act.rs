//! Does what was decided for a subscription.

use agent_api::metal3::BmcEventSubscription;
use agent_api::metal3::bmc_event_subscription::FINALIZER;
use reqwest::Method;
use serde_json::{Value, json};

use super::conclude::is_gone;
use super::controller::Controller;
use crate::operators::kit::{Next, Object as _, ObjectError};

impl Controller {
    pub(super) async fn create(&self, subscription: &BmcEventSubscription, node: &str) -> Result<Next, ObjectError> {
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
        self.common.base.objects.merge_status(subscription, json!({"subscriptionID": id, "error": null})).await?;
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
        let Some(secret) = self.common.base.objects.secret(&namespace, name).await? else {
            return Ok(Err(format!("the Secret `{namespace}/{name}` with HTTP headers does not exist")));
        };
        let one = |(header, value): (String, k8s_openapi::ByteString)| {
            let text = String::from_utf8(value.0);
            let text = text.map_err(|_| format!("the HTTP header `{header}` of the Secret `{name}` is no text"))?;
            Ok(json!({header: text}))
        };
        Ok(secret.data.unwrap_or_default().into_iter().map(one).collect())
    }

    pub(super) async fn remove(
        &self,
        subscription: &BmcEventSubscription,
        node: &str,
        id: &str,
    ) -> Result<Next, ObjectError> {
        let body = json!({"id": id});
        let removed =
            self.common.ironic.vendor_passthru(node, "delete_subscription", Method::DELETE, Some(&body)).await;
        match removed {
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return self.failed(subscription, "delete", &error).await,
        }
        self.common.base.objects.let_go(subscription, FINALIZER).await?;
        Ok(self.rests(&subscription.key()))
    }
}
