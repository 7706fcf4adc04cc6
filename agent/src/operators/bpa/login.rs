//! How to log in to the servers of a cluster: with the cluster's own key, the user's key, or the user's password.

use std::net::IpAddr;
use std::sync::Arc;

use agent_api::clusters::provisioning::Provisioning;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use super::common::{Common, MANAGER};
use crate::operators::kit::{Object as _, ObjectError, text_of};
use crate::ssh::{self, Identity, SshError, Target};

/// Secret with the user's key where the spec names none: ICN's.
const DEFAULT_SECRET: &str = "ssh-key-secret";
/// Keys of a Secret with a private key: Kubernetes' own, and ICN's.
const PRIVATE: [&str; 2] = ["ssh-privatekey", "id_rsa"];
const PASSWORD: &str = "password";

/// The login to the servers of a cluster.
pub struct Login {
    /// Who logs in.
    pub user: String,
    /// Where.
    pub port: u16,
    /// With what.
    pub identity: Identity,
    /// Line for `authorized_keys` of the cluster's own key.
    pub authorized: String,
}

impl Login {
    /// The SSH target for one server. `host_key`: the only key that it may have; with `None` any key is accepted.
    pub fn target(&self, address: IpAddr, host_key: Option<String>) -> Target {
        Target { address, port: self.port, user: self.user.clone(), host_key }
    }
}

/// Why there is no login.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The API server.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A key that cannot be read.
    #[error(transparent)]
    Key(#[from] SshError),
    /// Something is missing: the text says what.
    #[error("{0}")]
    Lacking(String),
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    // `kubectl create secret --from-file` keeps the newline at the end of the file.
    text_of(secret, key).filter(|text| !text.trim().is_empty())
}

impl Common {
    /// The login to its servers: with the cluster's own key, which is made here the first time, else with what the user's
    /// Secret has.
    pub async fn login(&self, object: &Provisioning) -> Result<Login, LoginError> {
        let (namespace, _) = object.key();
        let objects = &self.base.objects;
        let wish = object.spec.ssh.clone().unwrap_or_default();
        let named = wish.secret_ref.as_ref().map(|reference| reference.name.clone());
        let users = objects.secret(&namespace, named.as_deref().unwrap_or(DEFAULT_SECRET)).await?;
        let own = objects.secret(&namespace, &key_name(object)).await?;
        let own = if let Some(own) = own {
            own
        } else {
            let (private, public) = ssh::new_key(&format!("foothold {}", object.cluster()))?;
            let data = [("ssh-privatekey", private), ("ssh-publickey", public)];
            objects.apply(&secret(object, &key_name(object), "kubernetes.io/ssh-auth", data), MANAGER).await?
        };
        let lacking = |what: &str| {
            let name = key_name(object);
            LoginError::Lacking(format!(
                "Secret `{namespace}/{name}` has no `{what}`; hint: delete it, and it is made anew"
            ))
        };
        let private = text(&own, "ssh-privatekey").ok_or_else(|| lacking("ssh-privatekey"))?;
        let authorized = text(&own, "ssh-publickey").ok_or_else(|| lacking("ssh-publickey"))?;
        let mut identity =
            Identity { keys: vec![Arc::new(ssh::private_key(&private, "the cluster's own key")?)], password: None };
        match (users, named) {
            (Some(users), _) => {
                for key in PRIVATE {
                    if let Some(private) = text(&users, key) {
                        let what = format!(
                            "`{key}` of Secret `{namespace}/{}`",
                            users.metadata.name.clone().unwrap_or_default()
                        );
                        identity.keys.push(Arc::new(ssh::private_key(&private, &what)?));
                    }
                }
                identity.password = text(&users, PASSWORD).map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
            }
            // Who was let in once, is by the cluster's own key: whoever deletes all of a cluster deletes the Secret first.
            (None, Some(name)) if !was_entered(object) => {
                return Err(LoginError::Lacking(format!(
                    "Secret `{namespace}/{name}`, which `spec.ssh.secretRef` names, is not there"
                )));
            }
            (None, _) => {}
        }
        let (user, port) = entered_as(object);
        Ok(Login { user, port, identity, authorized })
    }

    /// The user's private key as it was written, for an installer that logs in by itself.
    ///
    /// # Errors
    /// There is no key, or it cannot be read.
    pub async fn users_key(&self, object: &Provisioning) -> Result<String, LoginError> {
        let (namespace, _) = object.key();
        let name = object.spec.ssh.as_ref().and_then(|wish| wish.secret_ref.as_ref());
        let name = name.map_or(DEFAULT_SECRET, |reference| &reference.name);
        let secret = self.base.objects.secret(&namespace, name).await?;
        let found = PRIVATE.iter().find_map(|key| Some((*key, text(secret.as_ref()?, key)?)));
        let Some((key, private)) = found else {
            return Err(LoginError::Lacking(format!(
                "Secret `{namespace}/{name}` has no `ssh-privatekey`, with which the image of `spec.installer` enters the servers"
            )));
        };
        ssh::private_key(&private, &format!("`{key}` of Secret `{namespace}/{name}`"))?;
        Ok(private)
    }
}

/// Whether a server of the cluster was entered: since then it has the cluster's own key.
fn was_entered(object: &Provisioning) -> bool {
    object.status.iter().flat_map(|status| &status.nodes).any(|node| node.host_key.is_some())
}

/// User name and port of the login.
pub fn entered_as(object: &Provisioning) -> (String, u16) {
    let wish = object.spec.ssh.clone().unwrap_or_default();
    (wish.user.unwrap_or_else(|| "root".to_owned()), wish.port.unwrap_or(22))
}

/// Name of the Secret with the cluster's own key.
pub fn key_name(object: &Provisioning) -> String {
    format!("{}-ssh", object.cluster())
}

/// A Secret of the cluster. It goes with the object.
pub fn secret<const N: usize>(object: &Provisioning, name: &str, kind: &str, data: [(&str, String); N]) -> Secret {
    let (namespace, _) = object.key();
    let bytes = |(key, text): (&str, String)| (key.to_owned(), ByteString(text.into_bytes()));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace),
            labels: Some([("cluster".to_owned(), object.cluster().to_owned())].into()),
            owner_references: kube::Resource::controller_owner_ref(object, &()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some(data.into_iter().map(bytes).collect()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::Provisioning;
    use serde_json::{Value, json};

    use super::was_entered;

    #[test]
    fn the_users_secret_is_needed_until_a_server_was_entered() {
        let object = |nodes: Value| -> Provisioning {
            let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
                "metadata": {"name": "p", "namespace": "default"}, "spec": {"masters": []}, "status": {"nodes": nodes}});
            serde_json::from_value(object).expect("an object")
        };
        let node = |key: Option<&str>| {
            json!({"name": "m", "roles": ["master"], "host": "metal3/m", "macAddress": "52:54:00:00:00:01",
                "ip": "172.22.0.1", "phase": "Waiting", "hostKey": key})
        };
        assert!(!was_entered(&object(json!([]))));
        assert!(!was_entered(&object(json!([node(None)]))));
        assert!(was_entered(&object(json!([node(None), node(Some("ssh-ed25519 AAAA"))]))));
    }
}
