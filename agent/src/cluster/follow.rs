//! Follows the objects of a kind in all namespaces by a watch: the caller gets what is kept of them once all are known,
//! and again after each change.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;

use anyhow::{Context as _, bail};
use futures_util::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;

/// Changes that come within this time are told together.
const TOGETHER: usize = 1024;

/// What is kept of objects, by namespace and name.
pub type Kept<T> = BTreeMap<(String, String), T>;

/// A client with the kubeconfig of a file.
///
/// # Errors
/// If the file cannot be read, or no client can be made from it.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading `{}`", kubeconfig.display()))?;
    connect(read).await
}

/// A client with a kubeconfig that somebody else wrote: from a Secret, or from an installer. It may name neither programs
/// nor files: they would be those of this process, and its own token would go to a server of their choice.
///
/// # Errors
/// If it names one, or no client can be made from it.
pub async fn client_of(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    only_data(&kubeconfig)?;
    connect(kubeconfig).await
}

/// Whether all that a kubeconfig needs is in it. An error names the key that leads elsewhere.
fn only_data(kubeconfig: &Kubeconfig) -> anyhow::Result<()> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let of_clusters = clusters.map(|cluster| {
        (cluster.certificate_authority.is_some(), "certificate-authority", "`certificate-authority-data`")
    });
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_users = users.flat_map(|user| {
        [
            (user.client_certificate.is_some(), "client-certificate", "`client-certificate-data`"),
            (user.client_key.is_some(), "client-key", "`client-key-data`"),
            (user.token_file.is_some(), "tokenFile", "`token`"),
            (user.exec.is_some(), "exec", "a certificate or a `token`"),
            (user.auth_provider.is_some(), "auth-provider", "a certificate or a `token`"),
        ]
    });
    match of_clusters.chain(of_users).find(|(is_there, ..)| *is_there) {
        None => Ok(()),
        Some((_, key, instead)) => {
            bail!(
                "the kubeconfig has `{key}`, which names something of whoever reads it; hint: write {instead} into it"
            )
        }
    }
}

async fn connect(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Follows a kind. `keep` says what is kept of an object, if anything; `tell` gets all of that.
///
/// # Errors
/// Ends with the first error, of the API server or of `tell`, and never without one. It may be called again then.
pub async fn follow<T: PartialEq, F: Future<Output = anyhow::Result<()>>>(
    client: Client,
    kind: &ApiResource,
    keep: impl Fn(&Value) -> Option<T>,
    mut tell: impl FnMut(&Kept<T>) -> F,
) -> anyhow::Result<()> {
    let api = Api::<DynamicObject>::all_with(client, kind);
    let mut batches = pin!(watcher(api, watcher::Config::default()).ready_chunks(TOGETHER));
    let mut followed = Followed { listed: false, all: Kept::new(), listing: Kept::new() };
    while let Some(batch) = batches.next().await {
        let mut changed = false;
        for event in batch {
            let event = event.with_context(|| format!("watching {}", kind.plural))?;
            changed |= followed.take(event, &keep)?;
        }
        if changed {
            tell(&followed.all).await?;
        }
    }
    bail!("the watch of {} has ended", kind.plural)
}

struct Followed<T> {
    listed: bool,
    all: Kept<T>,
    /// What takes the place of all when the list is at its end.
    listing: Kept<T>,
}

impl<T: PartialEq> Followed<T> {
    /// Returns whether there is something to tell.
    fn take(&mut self, event: Event<DynamicObject>, keep: impl Fn(&Value) -> Option<T>) -> anyhow::Result<bool> {
        let key = |object: &DynamicObject| {
            let metadata = &object.metadata;
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
        };
        let kept = |object: DynamicObject| Ok::<_, anyhow::Error>(keep(&serde_json::to_value(object)?));
        Ok(match event {
            Event::Init => {
                self.listing.clear();
                false
            }
            Event::InitApply(object) => {
                let key = key(&object);
                if let Some(kept) = kept(object)? {
                    self.listing.insert(key, kept);
                }
                false
            }
            Event::InitDone => {
                let listing = std::mem::take(&mut self.listing);
                let changed = !self.listed || listing != self.all;
                (self.listed, self.all) = (true, listing);
                changed
            }
            Event::Apply(object) => {
                let key = key(&object);
                match kept(object)? {
                    None => self.all.remove(&key).is_some(),
                    Some(kept) if self.all.get(&key) == Some(&kept) => false,
                    Some(kept) => {
                        self.all.insert(key, kept);
                        true
                    }
                }
            }
            Event::Delete(object) => self.all.remove(&key(&object)).is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use kube::runtime::watcher::Event::{self, Apply, Delete, Init, InitApply, InitDone};
    use serde_json::{Value, json};

    use super::{Followed, Kept, only_data};

    /// A kubeconfig of a cluster and a user with these keys.
    fn kubeconfig(cluster: &Value, user: &Value) -> kube::config::Kubeconfig {
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}]});
        kube::config::Kubeconfig::from_yaml(&text.to_string()).expect("a kubeconfig")
    }

    #[test]
    fn a_kubeconfig_of_somebody_else_names_no_file_and_no_program() {
        let server = json!({"server": "https://10.0.0.5:6443", "certificate-authority-data": "Y2E="});
        for user in [
            json!({"token": "abc"}),
            json!({"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}),
            json!({"username": "u", "password": "p"}),
        ] {
            only_data(&kubeconfig(&server, &user)).expect("all of it is there");
        }
        let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
        for (key, value) in [
            ("tokenFile", json!(token)),
            ("client-certificate", json!("/etc/x.crt")),
            ("client-key", json!("/etc/x.key")),
            ("exec", json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"})),
            ("auth-provider", json!({"name": "gcp", "config": {}})),
        ] {
            let mut user = json!({"token": "abc"});
            user[key] = value;
            let error = only_data(&kubeconfig(&server, &user)).expect_err(key).to_string();
            assert!(error.contains(&format!("`{key}`")) && error.contains("hint: write"), "{error}");
        }
        let of_file = json!({"server": "https://10.0.0.5:6443", "certificate-authority": "/etc/ca.crt"});
        let error = only_data(&kubeconfig(&of_file, &json!({"token": "abc"}))).expect_err("a file").to_string();
        assert!(error.contains("`certificate-authority`"), "{error}");
    }

    fn object(name: &str, mac: Option<&str>, status: &str) -> DynamicObject {
        let object = json!({"metadata": {"name": name, "namespace": "site"}, "mac": mac, "status": status});
        serde_json::from_value(object).expect("an object")
    }

    #[test]
    fn only_what_matters_is_told() {
        let mut followed = Followed { listed: false, all: Kept::new(), listing: Kept::new() };
        let keep = |object: &Value| object["mac"].as_str().map(str::to_owned);
        let mut take = |event: Event<DynamicObject>| {
            let changed = followed.take(event, keep).expect("taken");
            let names = |((_, name), mac): (&(String, String), &String)| format!("{name} {mac}");
            changed.then(|| followed.all.iter().map(names).collect::<Vec<_>>())
        };
        let told = |all: &[&str]| Some(all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
        assert_eq!(take(Init), None);
        assert_eq!(take(InitDone), told(&[]), "that there are none is told too");
        assert_eq!(take(Apply(object("a", Some("1"), "new"))), told(&["a 1"]));
        assert_eq!(take(Apply(object("a", Some("1"), "older"))), None);
        assert_eq!(take(Apply(object("a", Some("2"), "older"))), told(&["a 2"]));
        assert_eq!(take(Apply(object("b", None, "new"))), None);
        assert_eq!(take(Delete(object("b", None, "new"))), None);
        assert_eq!(take(Apply(object("a", None, "old"))), told(&[]));
        // Listed anew, after something was missed.
        assert_eq!(take(Apply(object("a", Some("1"), "old"))), told(&["a 1"]));
        assert_eq!(take(Init), None);
        assert_eq!(take(InitApply(object("a", Some("1"), "old"))), None);
        assert_eq!(take(InitDone), None, "nothing was");
        assert_eq!([take(Init), take(InitApply(object("c", Some("3"), "new")))], [None, None]);
        assert_eq!(take(InitDone), told(&["c 3"]));
    }
}
