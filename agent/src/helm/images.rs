//! Which images the objects of a chart pull, and whether the box has them. This is checked before anything is applied.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_api::image::ImageName;
use anyhow::Context as _;
use reqwest::{StatusCode, Url, header};
use serde_json::Value;

use super::record::documents;
use crate::cluster::apply::declared::Id;
use crate::http::client;

/// Longest wait for the registry.
const ANSWER: Duration = Duration::from_secs(30);
/// Manifests and indexes, by OCI and by Docker.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.docker.distribution.manifest.v2+json";
/// Lists of containers in a pod's spec.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The images of containers, and the first object that pulls each.
fn pulled(manifest: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for object in documents(manifest)? {
        collect(&object, &Id::of(&object).to_string(), &mut found);
    }
    Ok(found)
}

fn collect(value: &Value, of: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let containers = if CONTAINERS.contains(&&**key) { value.as_array() } else { None };
                for image in containers.into_iter().flatten().filter_map(|container| container["image"].as_str()) {
                    found.entry(image.to_owned()).or_insert_with(|| of.to_owned());
                }
                collect(value, of, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, of, found)),
        _ => {}
    }
}

/// Asks the box's registry for each image of the manifest.
///
/// # Errors
/// The registry lacks images: each is named with an object that pulls it.
pub async fn check(registry: &str, manifest: &str) -> anyhow::Result<()> {
    let http = client::plain().timeout(ANSWER).build()?;
    let mut missing = Vec::new();
    for (image, object) in pulled(manifest)? {
        let Ok(name) = image.parse::<ImageName>() else {
            missing.push(format!("{object} pulls `{image}`, which is no image's name"));
            continue;
        };
        let reference = match (&name.digest, &name.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_default(),
        };
        let at = format!("http://{registry}/v2/{}/manifests/{reference}", name.path);
        let url = Url::parse_with_params(&at, [("ns", &name.host)])?;
        let asked = http.head(url).header(header::ACCEPT, MANIFESTS).send().await;
        let status = asked.with_context(|| format!("asking the box's registry for `{image}`"))?.status();
        match status {
            StatusCode::NOT_FOUND => missing.push(format!("{object} pulls `{image}`, which the box does not have")),
            status if status.is_success() => {}
            status => anyhow::bail!("the box's registry answered {status} for `{image}`"),
        }
    }
    anyhow::ensure!(
        missing.is_empty(),
        "{}\nhint: carry the images in `content.images`, or push them to the box; nothing was applied",
        missing.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::pulled;

    #[test]
    fn every_container_of_every_kind_of_pod_is_seen_and_nothing_else() {
        let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web, namespace: a }\nspec:\n  template:\n\
                        \x20   spec:\n      containers: [ { name: c, image: web:1 } ]\n\
                        \x20     initContainers: [ { name: i, image: init:1 }, { name: j, image: web:1 } ]\n---\n\
                        apiVersion: batch/v1\nkind: CronJob\nmetadata: { name: night }\nspec: { jobTemplate: { spec: { \
                        template: { spec: { containers: [ { name: c, image: \"r.example/night@sha256:0\" } ] } } } } }\n---\n\
                        apiVersion: v1\nkind: ConfigMap\nmetadata: { name: m }\ndata: { image: no, containers: none }\n";
        let found = pulled(manifest).expect("objects");
        let all: Vec<(&str, &str)> = found.iter().map(|(image, of)| (image.as_str(), of.as_str())).collect();
        let web = "Deployment a/web";
        assert_eq!(all, [("init:1", web), ("r.example/night@sha256:0", "CronJob night"), ("web:1", web)]);
    }
}
