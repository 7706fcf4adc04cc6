//! Objects of the cluster that belong to a host: its Secrets, and what was found in it.

use agent_api::encrypted;
use agent_api::metal3::annotations::SECRET_LABEL;
use agent_api::metal3::bmc_address::{BmcAddress, Credentials};
use agent_api::metal3::{BareMetalHost, HardwareData, HardwareDataSpec, HardwareDetails, SecretReference};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::decide::{BmcSecret, SecretVersion};
use super::wishes::CloudData;
use super::{pull_secret, secret_text};
use crate::operators::kit::{ObjectError, Objects, doing, text_of};

/// Whose fields the objects are that the controller applies.
const MANAGER: &str = "foothold-baremetalhost";
/// Finalizer that metal3's operator puts on `HardwareData`.
const HARDWARE_FINALIZER: &str = "baremetalhost.metal3.io/hardwareData";
/// Finalizer that metal3's operator puts on Secrets.
const SECRET_FINALIZER: &str = "baremetalhost.metal3.io/secret";

/// Namespace of a host.
pub fn namespace(host: &BareMetalHost) -> &str {
    host.metadata.namespace.as_deref().unwrap_or_default()
}

impl Objects {
    /// Merges `metadata` into a host's, unless the host was changed in between.
    pub async fn merge_metadata(&self, host: &BareMetalHost, metadata: Value) -> Result<BareMetalHost, ObjectError> {
        self.merge(host, json!({"metadata": metadata})).await
    }

    /// What another operator has put on objects of the host, and would keep them forever.
    pub async fn release(&self, host: &BareMetalHost) -> Result<(), ObjectError> {
        let name = host.name_any();
        if let Some(data) = self.get::<HardwareData>(namespace(host), &name).await? {
            self.let_go(&data, HARDWARE_FINALIZER).await?;
        }
        let secret = host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str()).filter(|name| !name.is_empty());
        if let Some(secret) = secret
            && let Some(secret) = self.get::<Secret>(namespace(host), secret).await?
        {
            self.let_go(&secret, SECRET_FINALIZER).await?;
        }
        Ok(())
    }

    /// The credentials of a host's BMC, and whether they can be used with its address.
    pub async fn credentials(
        &self,
        host: &BareMetalHost,
    ) -> Result<(BmcSecret, Option<(BmcAddress, Credentials)>), ObjectError> {
        let none = |why: &str| Ok((BmcSecret::Missing(why.to_owned()), None));
        let Some(bmc) = &host.spec.bmc else { return none("the host has no BMC") };
        let name = bmc.credentials_name.as_str();
        if name.is_empty() {
            return none("The BMC secret reference is missing: `spec.bmc.credentialsName` is empty");
        }
        let Some(secret) = self.secret(namespace(host), name).await? else {
            return none(&format!("The BMC secret {}/{name} does not exist", namespace(host)));
        };
        let secret = self.claimed(host, secret).await?;
        let [user, password] = ["username", "password"].map(|key| text_of(&secret, key));
        let encrypted = [&user, &password].into_iter().flatten().find_map(|text| encrypted::told(text));
        let login = Credentials::new(user.as_deref(), password.as_deref()).map_err(|error| error.to_string());
        let told = |why| Err(format!("The BMC secret {}/{name} {why}", namespace(host)));
        let login = encrypted.map_or(login, told);
        let both = login.and_then(|login| {
            let address: BmcAddress = bmc.address.parse().map_err(|error| format!("{error}"))?;
            Ok((address, login))
        });
        Ok(match both {
            Err(why) => (BmcSecret::Bad(why), None),
            Ok(both) => {
                let version = secret.metadata.resource_version.clone().unwrap_or_default();
                let found = SecretVersion { name: name.to_owned(), namespace: namespace(host).to_owned(), version };
                (BmcSecret::Found(found), Some(both))
            }
        })
    }

    /// `ca.crt` of the Secret with a host's credentials.
    pub async fn bmc_authority(&self, host: &BareMetalHost) -> Result<Option<String>, ObjectError> {
        let name = host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str()).unwrap_or_default();
        let secret = self.secret(namespace(host), name).await?;
        Ok(secret.and_then(|secret| text_of(&secret, "ca.crt")))
    }

    /// The Secret is watched from now on, and goes with its host; one that several hosts name goes with the last of its
    /// owners, or stays. It gets no finalizer: a deletion needs no credentials.
    async fn claimed(&self, host: &BareMetalHost, secret: Secret) -> Result<Secret, ObjectError> {
        if host.metadata.deletion_timestamp.is_some() {
            return Ok(secret);
        }
        let mut owners = secret.metadata.owner_references.clone().unwrap_or_default();
        let label = secret.labels().get(SECRET_LABEL.0).is_some_and(|value| value == SECRET_LABEL.1);
        let owned = owners.iter().any(|owner| Some(&owner.uid) == host.metadata.uid.as_ref());
        let theirs = owners.iter().any(|owner| owner.kind == BareMetalHost::kind(&()));
        if label && (owned || !theirs) {
            return Ok(secret);
        }
        if !owned && (label || !self.is_shared(host, &secret.name_any()).await?) {
            owners.extend(host.owner_ref(&()));
        }
        let metadata = json!({"labels": {SECRET_LABEL.0: SECRET_LABEL.1}, "ownerReferences": owners});
        self.merge(&secret, json!({"metadata": metadata})).await
    }

    /// Whether other hosts have the same credentials.
    async fn is_shared(&self, host: &BareMetalHost, secret: &str) -> Result<bool, ObjectError> {
        let all = self.api::<BareMetalHost>(namespace(host)).list(&ListParams::default()).await;
        let all = all.map_err(doing(format!("listing BareMetalHosts of `{}`", namespace(host))))?;
        let names = |one: &BareMetalHost| one.spec.bmc.as_ref().is_some_and(|bmc| bmc.credentials_name == secret);
        Ok(all.iter().any(|one| one.metadata.uid != host.metadata.uid && names(one)))
    }

    /// A text of a Secret of the host's namespace, under `key` or under `value`; or what is missing.
    pub async fn secret_text(
        &self,
        host: &BareMetalHost,
        name: &str,
        key: &str,
    ) -> Result<Result<String, String>, ObjectError> {
        let namespace = namespace(host);
        let Some(secret) = self.secret(namespace, name).await? else {
            return Ok(Err(format!("the Secret `{namespace}/{name}` with `{key}` does not exist")));
        };
        let data = secret.data.unwrap_or_default();
        let Some((key, bytes)) = [key, "value"].iter().find_map(|key| data.get_key_value(*key)) else {
            return Ok(Err(format!("the Secret `{namespace}/{name}` has neither the key `{key}` nor `value`")));
        };
        Ok(secret_text::text(bytes).map_err(|why| format!("`{key}` of the Secret `{namespace}/{name}` {why}")))
    }

    async fn referred(
        &self,
        host: &BareMetalHost,
        reference: Option<&SecretReference>,
        key: &str,
    ) -> Result<Result<Option<String>, String>, ObjectError> {
        let name = reference.and_then(|it| it.name.as_deref()).filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(Ok(None)) };
        let other = reference.and_then(|it| it.namespace.as_deref()).filter(|other| !other.is_empty());
        // Also where nobody was asked whether the host is admitted.
        if let Some(other) = other.filter(|other| *other != namespace(host)) {
            let own = namespace(host);
            return Ok(Err(format!(
                "the Secret `{other}/{name}` with `{key}` must be in the host's namespace `{own}`"
            )));
        }
        Ok(self.secret_text(host, name, key).await?.map(Some))
    }

    /// What the host's config drive is made of; or what is missing.
    pub async fn cloud_data(&self, host: &BareMetalHost) -> Result<Result<CloudData, String>, ObjectError> {
        let spec = &host.spec;
        let ramdisk = spec.preprovisioning_network_data_name.clone();
        let ramdisk = ramdisk.map(|name| SecretReference { name: Some(name), namespace: None });
        let network = spec.network_data.as_ref().or(ramdisk.as_ref());
        let mut texts = Vec::new();
        for (reference, key) in
            [(spec.user_data.as_ref(), "userData"), (network, "networkData"), (spec.meta_data.as_ref(), "metaData")]
        {
            match self.referred(host, reference, key).await? {
                Ok(text) => texts.push(text),
                Err(why) => return Ok(Err(why)),
            }
        }
        let mut texts = texts.into_iter();
        let mut next = || texts.next().flatten();
        Ok(Ok(CloudData { user: next(), network: next(), meta: next() }))
    }

    /// User and password of the registry that the image comes from, as Ironic takes them; or what is missing.
    pub async fn pull_secret(&self, host: &BareMetalHost) -> Result<Result<Option<String>, String>, ObjectError> {
        let Some(image) = &host.spec.image else { return Ok(Ok(None)) };
        let Some(name) = image.oci_auth_secret_name.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(Ok(None));
        };
        let Some(secret) = self.secret(namespace(host), name).await? else {
            return Ok(Err(format!("the Secret `{}/{name}` of the image's registry does not exist", namespace(host))));
        };
        let found = pull_secret::login(&secret, &image.url);
        Ok(found
            .map(Some)
            .map_err(|why| format!("the Secret `{}/{name}` of the image's registry {why}", namespace(host))))
    }

    /// What was found in a host, as it is kept beside it.
    pub async fn hardware(&self, host: &BareMetalHost) -> Result<Option<HardwareDetails>, ObjectError> {
        Ok(self.get::<HardwareData>(namespace(host), &host.name_any()).await?.and_then(|data| data.spec.hardware))
    }

    /// Writes what was found in a host beside it; it goes with its host.
    pub async fn save_hardware(&self, host: &BareMetalHost, details: &HardwareDetails) -> Result<(), ObjectError> {
        let (namespace, name) = (namespace(host), host.name_any());
        let mut data = HardwareData::new(&name, HardwareDataSpec { hardware: Some(details.clone()) });
        data.metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.to_owned()),
            owner_references: host.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        self.apply(&data, MANAGER).await.map(drop)
    }
}
