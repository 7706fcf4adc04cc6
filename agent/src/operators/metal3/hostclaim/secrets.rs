//! Secrets of a claim in its host's namespace.

use agent_api::metal3::annotations::SECRET_LABEL;
use agent_api::metal3::{BareMetalHost, HostClaim, Image, SecretReference};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use kube::{Resource as _, ResourceExt as _};

use super::wishes::Data;
use crate::operators::kit::{Object as _, ObjectError, doing};
use crate::operators::metal3::common::Common;

/// Annotation of copies: namespace and name of the claim.
const COPY_OF: &str = "foothold.dev/hostclaim";

/// What a Secret is for; a copy is named after its host and this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// User data.
    User,
    /// Metadata.
    Meta,
    /// Network data.
    Network,
    /// Credentials of the image's registry.
    Registry,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::User, Self::Meta, Self::Network, Self::Registry];

    fn copy(self, host: &BareMetalHost) -> String {
        let role = match self {
            Self::User => "userdata",
            Self::Meta => "metadata",
            Self::Network => "networkdata",
            Self::Registry => "registry",
        };
        format!("{}-{role}", host.name_any())
    }

    /// Reason of the claim's condition when the Secret cannot be had.
    pub const fn failure(self) -> &'static str {
        match self {
            Self::User => "UserDataSecretSyncFailure",
            Self::Meta => "MetaDataSecretSyncFailure",
            Self::Network => "NetworkDataSecretSyncFailure",
            Self::Registry => "RegistrySecretSyncFailure",
        }
    }

    /// Name of its Secret in a spec with these references (user data, metadata, network data) and this image.
    fn named(self, references: [&Option<SecretReference>; 3], image: Option<&Image>) -> Option<String> {
        let [user, meta, network] = references;
        let of = |reference: &Option<SecretReference>| reference.as_ref()?.name.clone();
        match self {
            Self::User => of(user),
            Self::Meta => of(meta),
            Self::Network => of(network),
            Self::Registry => image?.oci_auth_secret_name.clone(),
        }
    }

    /// Name of the Secret in the claim's namespace: another namespace is never looked into for it.
    fn source(self, claim: &HostClaim) -> Option<String> {
        let spec = &claim.spec;
        let name = self.named([&spec.user_data, &spec.meta_data, &spec.network_data], spec.image.as_ref());
        name.filter(|name| !name.is_empty())
    }

    /// Whether the host refers to the copy.
    fn used(self, host: &BareMetalHost) -> bool {
        let spec = &host.spec;
        let name = self.named([&spec.user_data, &spec.meta_data, &spec.network_data], spec.image.as_ref());
        name == Some(self.copy(host))
    }
}

/// Why a Secret cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What it is for.
    pub role: Role,
    /// Why.
    pub why: String,
}

/// Has the claim's Secrets where its host may use them; copies that it wants no longer are still there.
pub async fn provide(
    common: &Common,
    claim: &HostClaim,
    host: &BareMetalHost,
) -> Result<Result<Data, Lack>, ObjectError> {
    let mut names = [const { None }; 4];
    for (name, role) in names.iter_mut().zip(Role::ALL) {
        let Some(source) = role.source(claim) else { continue };
        *name = if needs_copies(claim, host) {
            match copy(common, claim, host, role, &source).await? {
                Ok(copy) => Some(copy),
                Err(why) => return Ok(Err(Lack { role, why })),
            }
        } else {
            Some(source)
        };
    }
    let namespace = host.key().0;
    let reference = |name: Option<String>| {
        name.map(|name| SecretReference { name: Some(name), namespace: Some(namespace.clone()) })
    };
    let [user, meta, network, registry] = names;
    Ok(Ok(Data { user: reference(user), meta: reference(meta), network: reference(network), registry }))
}

/// Whether the host cannot use the claim's own Secrets.
fn needs_copies(claim: &HostClaim, host: &BareMetalHost) -> bool {
    claim.key().0 != host.key().0
}

/// Whether the host uses copies, which may grow old.
pub fn has_copies(claim: &HostClaim, host: &BareMetalHost) -> bool {
    needs_copies(claim, host) && Role::ALL.into_iter().any(|role| role.source(claim).is_some())
}

async fn copy(
    common: &Common,
    claim: &HostClaim,
    host: &BareMetalHost,
    role: Role,
    source: &str,
) -> Result<Result<String, String>, ObjectError> {
    let (from, to) = (claim.key().0, host.key().0);
    let Some(original) = common.base.objects.get::<Secret>(&from, source).await? else {
        return Ok(Err(format!("the Secret `{from}/{source}` does not exist")));
    };
    let name = role.copy(host);
    let owner = format!("{from}/{}", claim.name_any());
    let there = common.base.objects.get::<Secret>(&to, &name).await?;
    if there.as_ref().is_some_and(|there| !there.annotations().contains_key(COPY_OF)) {
        // Its owner may not see the hosts' namespace: its name is said to nobody else either.
        return Ok(Err("the host's namespace has a Secret already where the copy would be".to_owned()));
    }
    let mut wanted = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(to.clone()),
            labels: Some([(SECRET_LABEL.0.to_owned(), SECRET_LABEL.1.to_owned())].into()),
            annotations: Some([(COPY_OF.to_owned(), owner)].into()),
            owner_references: host.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: original.data,
        ..Secret::default()
    };
    let api = common.base.objects.api::<Secret>(&to);
    let what = format!("copying a Secret of HostClaim `{from}/{}` to `{to}/{name}`", claim.name_any());
    match there {
        Some(there) if same(&there, &wanted) => {}
        Some(there) => {
            wanted.type_ = there.type_;
            wanted.metadata.resource_version = there.metadata.resource_version;
            api.replace(&name, &PostParams::default(), &wanted).await.map_err(doing(what))?;
        }
        None => {
            api.create(&PostParams::default(), &wanted).await.map_err(doing(what))?;
        }
    }
    Ok(Ok(name))
}

/// Whether a copy is as it should be.
fn same(there: &Secret, wanted: &Secret) -> bool {
    there.data == wanted.data
        && there.metadata.owner_references == wanted.metadata.owner_references
        && there.annotations().get(COPY_OF) == wanted.annotations().get(COPY_OF)
        && there.labels().get(SECRET_LABEL.0).is_some_and(|value| value == SECRET_LABEL.1)
}

/// Copies that the host still refers to, and the claim does not want any more. Call it before the host is changed.
pub fn needless(claim: &HostClaim, host: &BareMetalHost) -> Vec<Role> {
    let copied = |role: &Role| needs_copies(claim, host) && role.used(host);
    Role::ALL.into_iter().filter(|role| copied(role) && role.source(claim).is_none()).collect()
}

/// All that may have been copied for a host.
pub fn all(claim: &HostClaim, host: &BareMetalHost) -> &'static [Role] {
    if needs_copies(claim, host) { &Role::ALL } else { &[] }
}

/// Removes copies; what is there under such a name and is no copy stays.
pub async fn remove(common: &Common, host: &BareMetalHost, roles: &[Role]) -> Result<(), ObjectError> {
    let namespace = host.key().0;
    for role in roles {
        let name = role.copy(host);
        let there = common.base.objects.get::<Secret>(&namespace, &name).await?;
        if !there.is_some_and(|there| there.annotations().contains_key(COPY_OF)) {
            continue;
        }
        let api = common.base.objects.api::<Secret>(&namespace);
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.map_err(doing(format!("removing Secret `{namespace}/{name}`")))?),
        }
    }
    Ok(())
}
