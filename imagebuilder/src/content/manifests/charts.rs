//! Charts of registries (`oci://`): by digest in the lock, their archives in the cache.
//!
//! A chart is an artifact with one archive (Helm's HIP 6, "OCI Support"); provenance may lie beside it.

use agent_api::image::ImageName;
use anyhow::{Context, Result, bail, ensure};

use crate::builder::Builder;
use crate::config::{Appliance, ChartOrigin, ImageReference};
use crate::content::images;
use crate::content::images::fetch::{self, Wanted};
use crate::content::images::manifest::{self, Document, Parts};
use crate::content::images::registry::Registries;
use crate::lock::Lock;
use crate::lock::images::{LockedChart, Piece};
use crate::store::{Cache, hash};

/// What describes a chart.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Its archive: the type of today, and that of Helm before 3.7.
const CONTENT: [&str; 2] = ["application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip"];

/// The charts of registries, each once.
fn of_registries(appliance: &Appliance) -> Vec<&ImageReference> {
    let mut all = Vec::new();
    for chart in &appliance.content.charts {
        if let ChartOrigin::Registry(reference) = &chart.chart
            && !all.contains(&reference)
        {
            all.push(reference);
        }
    }
    all
}

/// Resolves the charts of registries into the lock. Their archives come into the cache on the way.
pub fn resolve(at: &Builder, appliance: &Appliance, lock: &mut Lock) -> Result<()> {
    let charts = of_registries(appliance);
    if charts.is_empty() {
        return Ok(());
    }
    let registries = images::registries(at, appliance)?;
    at.report.step("lock", "charts").run(|step| {
        for (done, reference) in charts.iter().enumerate() {
            step.count(done as u64, charts.len() as u64, "charts");
            let locked = one(&at.cache, &registries, reference.name());
            let locked = locked.with_context(|| format!("resolving the chart `oci://{reference}`"))?;
            lock.charts.insert(reference.to_string(), locked);
        }
        Ok(())
    })
}

fn one(cache: &Cache, registries: &Registries<'_>, name: &ImageName) -> Result<LockedChart> {
    let bytes = registries.manifest(name, None)?;
    let digest = hash::bytes(&bytes);
    if let Some(expected) = name.digest.as_ref().filter(|expected| **expected != digest) {
        bail!("{} sent {digest}, `{name}` is expected to be {expected}", registries.source(name));
    }
    let (media_type, document) = manifest::read(&bytes)?;
    let content = archive_of(document)?;
    let manifest = Piece { media_type, digest, size: bytes.len() as u64 };
    cache.adopt_bytes(&bytes)?;
    fetch::bring(cache, registries, &[Wanted { name, piece: &content }], &|_, _| ())?;
    Ok(LockedChart { manifest, content })
}

/// The archive that a chart's manifest names.
fn archive_of(document: Document) -> Result<Piece> {
    let Document::Manifest(Parts { config, layers }) = document else {
        bail!("it is an index of several artifacts, and no chart\nhint: name one of them by its digest")
    };
    ensure!(
        config.media_type == CONFIG,
        "it is no chart: it is described by `{}`, and a chart by `{CONFIG}`\nhint: container images belong into \
         `content.images`",
        config.media_type
    );
    let found = layers.into_iter().find(|layer| CONTENT.contains(&layer.media_type.as_str()));
    found.context("it is a chart without an archive")
}

/// Brings the archives of the lock into the cache. Returns the bytes that were fetched.
pub fn bring(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<u64> {
    let mut missing = Vec::new();
    for reference in of_registries(appliance) {
        if let Some(locked) = lock.charts.get(&reference.to_string())
            && !at.cache.holds(&locked.content.blob())?
        {
            missing.push(Wanted { name: reference.name(), piece: &locked.content });
        }
    }
    let Some(first) = missing.first() else { return Ok(0) };
    if at.network.offline {
        bail!(
            "the chart `oci://{}` is not in the cache and `--offline` was given\nhint: build once without `--offline`",
            first.name
        );
    }
    let registries = images::registries(at, appliance)?;
    let step = at.report.step("build", "charts");
    step.run(|step| fetch::bring(&at.cache, &registries, &missing, &|done, total| step.bytes(done, Some(total))))
}

#[cfg(test)]
mod tests {
    use super::{CONFIG, CONTENT, archive_of};
    use crate::content::images::manifest;

    fn manifest(config: &str, layers: &[&str]) -> manifest::Document {
        let digest = "0".repeat(64);
        let part = |kind: &str| serde_json::json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": 1});
        let layers: Vec<_> = layers.iter().map(|kind| part(kind)).collect();
        let text = serde_json::json!({"schemaVersion": 2, "config": part(config), "layers": layers}).to_string();
        manifest::read(text.as_bytes()).expect("a manifest").1
    }

    #[test]
    fn a_chart_is_known_by_its_types() {
        let provenance = "application/vnd.cncf.helm.chart.provenance.v1.prov";
        assert_eq!(archive_of(manifest(CONFIG, &[provenance, CONTENT[0]])).expect("a chart").media_type, CONTENT[0]);
        let image = manifest("application/vnd.oci.image.config.v1+json", &["application/vnd.oci.image.layer.v1.tar"]);
        let error = archive_of(image).expect_err("an image").to_string();
        assert!(error.contains("it is no chart") && error.contains("content.images"), "{error}");
        assert!(archive_of(manifest(CONFIG, &[provenance])).is_err());
    }
}
