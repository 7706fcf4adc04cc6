//! The kinds that tell of firmware, in the cluster.

use std::sync::Arc;

use agent_api::metal3::{
    BareMetalHost, FirmwareSchema, FirmwareSchemaSpec, HostFirmwareComponents, HostFirmwareComponentsSpec,
    HostFirmwareSettings, HostFirmwareSettingsSpec, HostUpdatePolicy,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::Mutex;

use super::super::objects::namespace;
use super::schema::Bios;
use crate::operators::kit::objects::what;
use crate::operators::kit::{Object, ObjectError, Objects, doing};

/// Owners that a schema has at most: each takes 200 bytes of an object that may have 1.5 MB. Those who share it beyond
/// that need no more of them to keep it.
const OWNERS: usize = 1000;

/// Reads and writes them.
#[derive(Clone)]
pub(super) struct FirmwareObjects {
    objects: Objects,
    /// Hosts of one kind share a schema: one at a time becomes an owner. All at once, most would come too late, and each
    /// try is the whole object, there and back.
    one_owner: Arc<Mutex<()>>,
}

impl FirmwareObjects {
    /// In a cluster.
    pub fn new(objects: Objects) -> Self {
        Self { objects, one_owner: Arc::default() }
    }

    /// The settings of a host, made where they are not there.
    pub async fn settings(&self, host: &BareMetalHost) -> Result<HostFirmwareSettings, ObjectError> {
        let new = HostFirmwareSettings::new(&host.name_any(), HostFirmwareSettingsSpec::default());
        self.ensured(host, new, host.controller_owner_ref(&())).await
    }

    /// The components of a host, made where they are not there.
    pub async fn components(&self, host: &BareMetalHost) -> Result<HostFirmwareComponents, ObjectError> {
        let new = HostFirmwareComponents::new(&host.name_any(), HostFirmwareComponentsSpec::default());
        self.ensured(host, new, host.owner_ref(&())).await
    }

    /// The object of a host's name, which goes with its host.
    async fn ensured<K: Object>(
        &self,
        host: &BareMetalHost,
        mut new: K,
        owner: Option<OwnerReference>,
    ) -> Result<K, ObjectError> {
        let api = self.objects.api::<K>(namespace(host));
        new.meta_mut().namespace = host.namespace();
        let found = api.get_opt(&host.name_any()).await.map_err(doing(what("reading", &new)))?;
        let Some(found) = found else {
            new.meta_mut().owner_references = owner.map(|owner| vec![owner]);
            return api.create(&PostParams::default(), &new).await.map_err(doing(what("making", &new)));
        };
        match owner {
            Some(owner) if !is_owned(&found, &owner.uid) => self.owned(&found, owner).await,
            Some(_) | None => Ok(found),
        }
    }

    /// An object with one more owner, in the place of an earlier one of the same name.
    async fn owned<K: Object>(&self, object: &K, owner: OwnerReference) -> Result<K, ObjectError> {
        let mut all = object.meta().owner_references.clone().unwrap_or_default();
        all.retain(|other| (&other.kind, &other.name) != (&owner.kind, &owner.name));
        all.push(owner);
        let merged = self.objects.merge(object, json!({"metadata": {"ownerReferences": all}})).await;
        merged.map_err(ObjectError::gone_is_stale)
    }

    /// Writes the status that an object has here, unless the object was changed in between.
    pub async fn write_status<K: Object>(&self, object: &K) -> Result<(), ObjectError> {
        self.objects.write_status(object).await.map(drop).map_err(ObjectError::gone_is_stale)
    }

    /// A policy goes with its host, whoever made it.
    pub async fn claim(&self, host: &BareMetalHost, policy: &HostUpdatePolicy) -> Result<(), ObjectError> {
        match host.owner_ref(&()) {
            Some(owner) if !is_owned(policy, &owner.uid) => self.owned(policy, owner).await.map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// The schema of these settings is there, and stays as long as they do.
    pub async fn schema(
        &self,
        host: &BareMetalHost,
        settings: &HostFirmwareSettings,
        bios: &Bios,
    ) -> Result<(), ObjectError> {
        let vendor = host.status.as_ref().and_then(|status| status.hardware.as_ref()?.system_vendor.as_ref());
        let spec = FirmwareSchemaSpec {
            hardware_vendor: vendor.and_then(|vendor| vendor.manufacturer.clone()),
            hardware_model: vendor.and_then(|vendor| vendor.product_name.clone()),
            schema: bios.schema.clone(),
        };
        let mut new = FirmwareSchema::new(&bios.name, spec);
        new.meta_mut().namespace = settings.namespace();
        let Some(owner) = settings.owner_ref(&()) else { return Ok(()) };
        let _one = self.one_owner.lock().await;
        let api = self.objects.api::<FirmwareSchema>(namespace(host));
        let found = api.get_opt(&bios.name).await.map_err(doing(what("reading", &new)))?;
        let Some(found) = found else {
            new.meta_mut().owner_references = Some(vec![owner]);
            return api.create(&PostParams::default(), &new).await.map(drop).map_err(doing(what("making", &new)));
        };
        if is_owned(&found, &owner.uid) || found.owner_references().len() >= OWNERS {
            return Ok(());
        }
        self.owned(&found, owner).await.map(drop)
    }
}

fn is_owned<K: Object>(object: &K, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}
