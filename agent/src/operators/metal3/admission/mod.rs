//! The webhook that refuses objects of metal3's group in the words of its operator: [`review`] has the rules, which ask
//! [`agent_api::metal3::admission`].

use std::net::SocketAddr;
use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use kube::Client;
use kube::runtime::reflector::Store;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::operators::kit::webhook::{self, Webhook};

mod review;

/// Where it answers, and for whom, under the names that metal3's manifests have.
fn webhook(address: SocketAddr, namespace: Option<String>) -> Webhook {
    Webhook {
        name: "baremetal-operator-validating-webhook-configuration",
        common_name: "baremetal-operator-webhook",
        manager: "foothold-baremetalhost",
        address,
        namespace,
    }
}

/// Starts it: the receiver turns true once the API server knows that it is to ask here. Needs a tokio runtime.
///
/// # Errors
/// No certificate can be made.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    (address, namespace): (SocketAddr, Option<String>),
    client: Client,
    hosts: Store<BareMetalHost>,
    stop: &CancellationToken,
) -> anyhow::Result<watch::Receiver<bool>> {
    let referring: review::Hosts = Arc::new(move || {
        let all = hosts.state();
        all.iter().filter(|host| host.spec.network_interfaces.is_some()).map(|it| (**it).clone()).collect()
    });
    webhook::start(tasks, &webhook(address, namespace), (review::RULES, referring), client, stop)
}

#[cfg(test)]
mod tests {
    use super::{review, webhook};
    use crate::operators::kit::webhook::configuration;

    #[test]
    fn the_api_server_is_told_where_to_ask_and_about_what() {
        let address = "127.0.0.1:9443".parse().expect("an address");
        let (name, object) = configuration(&webhook(address, None), review::RULES, "PEM");
        insta::assert_snapshot!(serde_json::to_string_pretty(&object).expect("JSON"));
        assert_eq!(name, "baremetal-operator-validating-webhook-configuration");
        let (name, object) = configuration(&webhook(address, Some("metal3".into())), review::RULES, "PEM");
        assert!(name.ends_with("-metal3"));
        let selector = &object["webhooks"][0]["namespaceSelector"]["matchLabels"];
        assert_eq!(selector["kubernetes.io/metadata.name"], "metal3");
    }
}
