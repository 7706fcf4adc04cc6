//! Who the users of a cluster are: its API servers trust the OIDC provider of the `SIPCluster`. Pure.
//!
//! They are told when the cluster is made: kubeadm keeps its configuration for those that join and for upgrades.

use agent_api::clusters::provisioning::NodeRole;

use super::decide::Chosen;
use super::wishes::Wanted;
use crate::node::plan::NodeFile;

/// The provider's authority, where pods of API servers see it: kubeadm mounts the folder.
const AUTHORITY: &str = "/etc/kubernetes/pki/oidc-ca.crt";

/// Flags of API servers; none where the cluster has no provider.
pub fn flags(wanted: &Wanted) -> Option<[(&'static str, String); 8]> {
    wanted.auth.as_ref().map(|auth| auth.flags(AUTHORITY))
}

/// What those flags name, on masters.
pub fn file(wanted: &Wanted, own: &Chosen) -> Option<NodeFile> {
    let auth = wanted.auth.as_ref().filter(|_| own.roles.contains(&NodeRole::Master))?;
    Some(NodeFile { path: AUTHORITY.to_owned(), text: auth.ca.clone() })
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeRole::{Master, Worker};
    use agent_api::sip::auth::AuthStatus;
    use serde_json::{Value, json};

    use super::super::decide::tests::chosen;
    use super::super::kubeadm;
    use super::super::kubeadm::tests::wanted;
    use super::{Wanted, file};

    /// SIP-11.
    #[test]
    fn api_servers_are_told_whom_to_trust_and_masters_have_his_authority() {
        let auth = AuthStatus {
            issuer: "https://172.22.0.1:30005/api/oidc".to_owned(),
            client_id: "kubernetes".to_owned(),
            username_claim: "email".to_owned(),
            groups_claim: "groups".to_owned(),
            prefix: "oidc:".to_owned(),
            signing_algorithm: "ES256".to_owned(),
            ca: "PEM\n".to_owned(),
        };
        let told = Wanted { auth: Some(auth), ..wanted(None) };
        let master = chosen("m", 10, &[Master]);
        let cluster = |wanted: &Wanted| -> Value {
            let text = kubeadm::init(wanted, "v1.36.4", &master);
            serde_json::from_str(text.split("---\n").nth(1).expect("a document")).expect("JSON")
        };
        let expected = [
            ("oidc-issuer-url", "https://172.22.0.1:30005/api/oidc"),
            ("oidc-client-id", "kubernetes"),
            ("oidc-username-claim", "email"),
            ("oidc-username-prefix", "oidc:"),
            ("oidc-groups-claim", "groups"),
            ("oidc-groups-prefix", "oidc:"),
            ("oidc-signing-algs", "ES256"),
            ("oidc-ca-file", "/etc/kubernetes/pki/oidc-ca.crt"),
        ];
        let usual = &cluster(&wanted(None))["apiServer"]["extraArgs"];
        let mut all = usual.as_array().expect("the flags of every cluster").clone();
        all.extend(expected.map(|(name, value)| json!({"name": name, "value": value})));
        assert_eq!(cluster(&told)["apiServer"]["extraArgs"], json!(all));
        assert!(!usual.to_string().contains("oidc"), "{usual}");
        let found = file(&told, &master).expect("a file");
        assert_eq!((&*found.path, &*found.text), ("/etc/kubernetes/pki/oidc-ca.crt", "PEM\n"));
        assert_eq!((file(&told, &chosen("w", 11, &[Worker])), file(&wanted(None), &master)), (None, None));
    }
}
