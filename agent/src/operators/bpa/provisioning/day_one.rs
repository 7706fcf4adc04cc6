//! What a cluster has from its first day, beside its network: the metrics API. Pure.

use super::wishes::Wanted;
use crate::cluster::metrics_server::{self, Trust};
use crate::cluster::objects::Placed;
use crate::operators::bpa::common::Parts;

/// Namespaces in which these parts live.
pub const NAMESPACES: [&str; 1] = [metrics_server::NAMESPACE];

/// What is applied to a new cluster, each a document of YAML: what was asked for, and where nothing was said, what the box
/// carries.
///
/// # Errors
/// The box does not carry what was asked for.
pub fn manifests(wanted: &Wanted, parts: &Parts) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    if let Some(image) = carried(wanted.metrics, parts.metrics.as_deref(), "metrics", "metrics: false")? {
        all.push(document(&metrics_server::objects(image, &Trust::Nothing)?));
    }
    Ok(all)
}

/// The part's image, where it shall run.
fn carried<'a>(
    asked: Option<bool>,
    image: Option<&'a str>,
    service: &str,
    without: &str,
) -> anyhow::Result<Option<&'a str>> {
    anyhow::ensure!(
        asked != Some(true) || image.is_some(),
        "the box has no image for `spec.kubernetes.{service}`; hint: add `services: {{ {service}: {{}} }}` to its definition, \
         or say `{without}`"
    );
    Ok(image.filter(|_| asked != Some(false)))
}

/// JSON is YAML.
fn document(objects: &[Placed]) -> String {
    let texts: Vec<String> = objects.iter().map(|placed| format!("{:#}\n", placed.object)).collect();
    texts.join("---\n")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::manifests;
    use crate::operators::bpa::common::Parts;
    use crate::operators::bpa::provisioning::kubeadm::tests::wanted;
    use crate::operators::bpa::provisioning::wishes::Wanted;

    #[test]
    fn what_the_box_carries_is_applied_unless_it_is_not_wanted() {
        let with = Parts { metrics: Some("foothold.dev/metrics-server:v1".to_owned()) };
        let none = Parts::default();
        for (asked, parts, applied) in [
            (None, &with, 1),
            (None, &none, 0),
            (Some(true), &with, 1),
            (Some(false), &with, 0),
            (Some(false), &none, 0),
        ] {
            let all = manifests(&Wanted { metrics: asked, ..wanted(None) }, parts).expect("manifests");
            assert_eq!(all.len(), applied, "{asked:?} {parts:?}");
        }
        let error = manifests(&Wanted { metrics: Some(true), ..wanted(None) }, &none).expect_err("it has none");
        for part in ["`spec.kubernetes.metrics`", "`services: { metrics: {} }`", "`metrics: false`"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_manifest_is_one_text_with_the_image_of_the_box() {
        let parts = Parts { metrics: Some("foothold.dev/metrics-server:v1".to_owned()) };
        let all = manifests(&wanted(None), &parts).expect("manifests");
        let objects: Vec<Value> =
            all[0].split("---\n").map(|text| serde_json::from_str(text).expect("an object")).collect();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "foothold.dev/metrics-server:v1");
    }
}
