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

/// Who tells the API server.
const MANAGER: &str = "foothold-baremetalhost";

/// Where it answers, and for whom.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address on which the API server reaches it.
    pub address: SocketAddr,
    /// Namespace whose objects are checked; all when `None`.
    pub namespace: Option<String>,
    /// ClusterRole with which the API server forgets it.
    pub owner: Option<String>,
}

/// Under the names that metal3's manifests have.
fn webhook(Place { address, namespace, owner }: Place) -> Webhook {
    Webhook {
        name: "baremetal-operator-validating-webhook-configuration",
        common_name: "baremetal-operator-webhook",
        manager: MANAGER,
        address,
        namespace,
        owner,
    }
}

/// Starts it: the receiver turns true once the API server knows that it is to ask here. Needs a tokio runtime.
///
/// # Errors
/// No certificate can be made.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    place: Place,
    client: Client,
    hosts: Store<BareMetalHost>,
    stop: &CancellationToken,
) -> anyhow::Result<watch::Receiver<bool>> {
    let referring: review::Hosts = Arc::new(move || {
        let all = hosts.state();
        all.iter().filter(|host| host.spec.network_interfaces.is_some()).map(|it| (**it).clone()).collect()
    });
    webhook::start(tasks, &webhook(place), (review::RULES, referring), client, stop)
}

/// Where there is no webhook: one that was there before goes. Needs a tokio runtime.
pub fn start_without(tasks: &mut JoinSet<anyhow::Result<()>>, client: Client, stop: &CancellationToken) {
    webhook::start_without(tasks, MANAGER, client, stop);
}

#[cfg(test)]
mod tests {
    use super::{Place, review, webhook};
    use crate::operators::kit::webhook::configuration;

    #[test]
    fn the_api_server_is_told_where_to_ask_and_about_what() {
        let address = "127.0.0.1:9443".parse().expect("an address");
        let place = |namespace: Option<&str>| Place { address, namespace: namespace.map(str::to_owned), owner: None };
        let (name, object) = configuration(&webhook(place(None)), review::RULES, "PEM");
        insta::assert_snapshot!(serde_json::to_string_pretty(&object).expect("JSON"));
        assert_eq!(name, "baremetal-operator-validating-webhook-configuration");
        let (name, object) = configuration(&webhook(place(Some("metal3"))), review::RULES, "PEM");
        assert!(name.ends_with("-metal3"));
        let selector = &object["webhooks"][0]["namespaceSelector"]["matchLabels"];
        assert_eq!(selector["kubernetes.io/metadata.name"], "metal3");
    }
}
