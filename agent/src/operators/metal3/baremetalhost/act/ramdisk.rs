//! Which ramdisk Ironic boots on a host: the controller's, or the one that was made for it as its `PreprovisioningImage`.

use agent_api::metal3::bmc_address::Driver;
use agent_api::metal3::{BareMetalHost, PreprovisioningImage, PreprovisioningImageSpec};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::super::objects::namespace;
use super::{Executor, Unfit};
use crate::operators::kit::{Object as _, ObjectError, doing};
use crate::operators::metal3::common::Ramdisk;
use crate::operators::metal3::preprovisioning::{Found, Need, found, need, unbootable, wanted};

impl Executor {
    /// The ramdisk for a host; nothing when its node keeps the one that it has; or what is missing.
    pub(super) async fn ramdisk(
        &self,
        host: &BareMetalHost,
        driver: Driver,
    ) -> Result<Result<Option<Ramdisk>, Unfit>, ObjectError> {
        let need = need(host);
        if !self.preprovisioning.used {
            let foreign = unbootable(host).filter(|_| need != Need::No);
            return Ok(
                foreign.map_or_else(|| Ok(Some(self.preprovisioning.ramdisk.clone())), |why| Err(Unfit::Wrong(why)))
            );
        }
        if need == Need::No {
            return Ok(Ok(None));
        }
        Ok(match (self.made(host, driver).await?, need) {
            (Found::Ready(ramdisk), _) => Ok(Some(ramdisk)),
            // Nobody may be left to make it: the host leaves with the one that its node has.
            (Found::Waits(_) | Found::Failed(_), Need::Must) if host.leaves() => Ok(None),
            (Found::Waits(_) | Found::Failed(_), Need::May | Need::No) => Ok(None),
            (Found::Waits(why), Need::Must) => Err(Unfit::Waits(why)),
            (Found::Failed(why), Need::Must) => Err(Unfit::Wrong(why)),
        })
    }

    /// What was made for a host; it is asked for first, unless the host leaves.
    async fn made(&self, host: &BareMetalHost, driver: Driver) -> Result<Found, ObjectError> {
        let (namespace, name) = (namespace(host), host.name_any());
        let wanted = wanted(host, driver);
        let Some(image) = self.objects.get::<PreprovisioningImage>(namespace, &name).await? else {
            if host.leaves() {
                return Ok(Found::Waits("it has no PreprovisioningImage".to_owned()));
            }
            self.ask_for_image(host, wanted).await?;
            return Ok(Found::Waits("its PreprovisioningImage was asked for".to_owned()));
        };
        if image.metadata.deletion_timestamp.is_some() {
            return Ok(Found::Waits("its old PreprovisioningImage is going".to_owned()));
        }
        if let Some(change) = change(host, &image, &wanted).filter(|_| !host.leaves()) {
            let api = self.objects.api::<PreprovisioningImage>(namespace);
            let changed = api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
            changed.map_err(doing(format!("changing PreprovisioningImage `{namespace}/{name}`")))?;
            return Ok(Found::Waits("its PreprovisioningImage was asked for anew".to_owned()));
        }
        let mut version = None;
        if let Some(data) = &wanted.network_data_name {
            version = self.objects.version::<Secret>(namespace, data).await?;
        }
        Ok(found(&image, version.as_deref()))
    }

    async fn ask_for_image(&self, host: &BareMetalHost, wanted: PreprovisioningImageSpec) -> Result<(), ObjectError> {
        let (namespace, name) = (namespace(host), host.name_any());
        let mut image = PreprovisioningImage::new(&name, wanted);
        image.metadata.namespace = Some(namespace.to_owned());
        image.metadata.labels.clone_from(&host.metadata.labels);
        image.metadata.owner_references = host.controller_owner_ref(&()).map(|owner| vec![owner]);
        let made = self.objects.api::<PreprovisioningImage>(namespace).create(&PostParams::default(), &image).await;
        made.map(drop).map_err(doing(format!("asking for PreprovisioningImage `{namespace}/{name}`")))
    }
}

/// What must change about an image for it to be what is asked for, with the host's labels.
fn change(host: &BareMetalHost, image: &PreprovisioningImage, wanted: &PreprovisioningImageSpec) -> Option<Value> {
    let labels: serde_json::Map<String, Value> = host
        .labels()
        .iter()
        .filter(|(name, value)| image.labels().get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    if labels.is_empty() && image.spec == *wanted {
        return None;
    }
    let spec = json!({
        "networkDataName": wanted.network_data_name,
        "architecture": wanted.architecture,
        "acceptFormats": wanted.accept_formats,
    });
    let metadata = json!({"labels": labels, "resourceVersion": image.metadata.resource_version});
    Some(json!({"metadata": metadata, "spec": spec}))
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{BareMetalHost, PreprovisioningImage, PreprovisioningImageSpec};
    use serde_json::json;

    use super::change;

    #[test]
    fn an_image_is_changed_when_it_is_not_as_asked_for() {
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "a", "namespace": "n", "labels": {"rack": "1"}}, "spec": {"online": true}});
        let host: BareMetalHost = serde_json::from_value(host).expect("a host");
        let wanted = PreprovisioningImageSpec { architecture: Some("x86_64".into()), ..Default::default() };
        let mut image = PreprovisioningImage::new("a", wanted.clone());
        image.metadata.labels = Some([("rack".to_owned(), "1".to_owned()), ("own".to_owned(), "2".to_owned())].into());
        assert_eq!(change(&host, &image, &wanted), None);
        image.spec.network_data_name = Some("old".to_owned());
        let told = change(&host, &image, &wanted).expect("a change");
        assert!(told["spec"]["networkDataName"].is_null() && told["spec"]["architecture"] == "x86_64");
        let mut unlabelled = PreprovisioningImage::new("a", wanted.clone());
        unlabelled.metadata.resource_version = Some("7".to_owned());
        let told = change(&host, &unlabelled, &wanted).expect("a change");
        assert_eq!(told["metadata"], json!({"labels": {"rack": "1"}, "resourceVersion": "7"}));
    }
}
