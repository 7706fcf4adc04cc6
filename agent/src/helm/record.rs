//! Helm's record of a release: JSON, packed, in base64, in a Secret (Helm's `storage/driver`).

use std::io::{Read as _, Write as _};

use agent_api::yaml;
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// Most bytes of a record: it fits a Secret when packed.
const MOST: u64 = 64 << 20;
/// Key of the Secret.
const KEY: &str = "release";
/// Installed, and nothing newer.
const DEPLOYED: &str = "deployed";
/// It did not work. An upgrade goes on from here.
const FAILED: &str = "failed";
/// States in which Helm is at work, and which keep every other Helm out (`IsPending`, and an uninstall).
const AT_WORK: [&str; 4] = ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"];

/// The objects of a manifest.
///
/// # Errors
/// The manifest is not YAML.
pub fn documents(manifest: &str) -> anyhow::Result<Vec<Value>> {
    let read: Vec<Value> = serde_saphyr::from_multiple_with_options(manifest, yaml::options(manifest))
        .map_err(|error| anyhow::anyhow!("the chart's objects are no YAML: {}", yaml::told(&error)))?;
    Ok(read.into_iter().filter(|object| object["kind"].is_string()).collect())
}

/// What Helm recorded of a release.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its revision.
    pub revision: i64,
    /// `deployed`, `failed` and the like.
    pub status: String,
    /// Its objects.
    pub objects: Vec<Value>,
}

impl Record {
    /// A record of its JSON.
    ///
    /// # Errors
    /// It has no revision, or its objects are not YAML.
    pub fn of(record: &Value) -> anyhow::Result<Self> {
        Ok(Self {
            revision: record["version"].as_i64().context("a record of Helm has no version")?,
            status: record["info"]["status"].as_str().unwrap_or_default().to_owned(),
            objects: documents(record["manifest"].as_str().unwrap_or_default())?,
        })
    }

    /// Why this, which is the newest one, is not what was installed as `revision`; `None` if it is.
    pub fn differs(&self, revision: Option<i64>) -> Option<String> {
        let Self { revision: newest, status, .. } = self;
        if is_at_work(status) {
            return Some(format!("its newest revision {newest} is `{status}`: a Helm was cut off"));
        }
        if status != DEPLOYED {
            return Some(format!("its newest revision {newest} is `{status}`"));
        }
        match revision {
            Some(own) if own == *newest => None,
            Some(own) => Some(format!("somebody else brought revision {newest}, after revision {own}")),
            None => Some(format!("somebody else brought revision {newest}")),
        }
    }
}

/// Whether a Helm is at work, or was when it was cut off.
pub fn is_at_work(status: &str) -> bool {
    AT_WORK.contains(&status)
}

/// The JSON of a record.
///
/// # Errors
/// The Secret is no record.
pub fn read(secret: &Secret) -> anyhow::Result<Value> {
    let data = secret.data.as_ref().and_then(|data| data.get(KEY)).context("a record of Helm is empty")?;
    let packed = STANDARD.decode(&data.0).context("a record of Helm is no base64")?;
    let mut text = Vec::new();
    GzDecoder::new(&*packed)
        .take(MOST + 1)
        .read_to_end(&mut text)
        .context("a record of Helm is not packed with gzip")?;
    ensure!(text.len() as u64 <= MOST, "a record of Helm has more than {MOST} bytes");
    serde_json::from_slice(&text).context("a record of Helm is no JSON")
}

fn packed(record: &Value) -> anyhow::Result<ByteString> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&serde_json::to_vec(record)?)?;
    Ok(ByteString(STANDARD.encode(packer.finish()?).into_bytes()))
}

/// The Secret of a record whose Helm was cut off, as one that failed, by which Helm lets an upgrade go on. `None` if no
/// Helm was at work. `now`: seconds since 1970.
///
/// # Errors
/// It cannot be packed.
pub fn unlocked(mut secret: Secret, mut record: Value, now: i64) -> anyhow::Result<Option<Secret>> {
    let status = record["info"]["status"].as_str().unwrap_or_default().to_owned();
    if !is_at_work(&status) {
        return Ok(None);
    }
    record["info"]["status"] = json!(FAILED);
    record["info"]["description"] = json!(format!("Helm was cut off while this was `{status}`"));
    secret.data.get_or_insert_default().insert(KEY.to_owned(), packed(&record)?);
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.insert("status".to_owned(), FAILED.to_owned());
    labels.insert("modifiedAt".to_owned(), now.to_string());
    Ok(Some(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(status: &str) -> Secret {
        let text = json!({"name": "web", "version": 4, "info": {"status": status, "description": "Preparing upgrade"},
            "apply_method": "ssa", "config": {"factor": 1.5},
            "manifest": "---\n# Source: web/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\n"});
        let labels = [("owner", "helm"), ("name", "web"), ("status", status), ("version", "4"), ("team", "a")];
        let mut secret = Secret { type_: Some("helm.sh/release.v1".to_owned()), ..Secret::default() };
        secret.metadata.resource_version = Some("7".to_owned());
        secret.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        secret.data = Some([(KEY.to_owned(), packed(&text).expect("packed"))].into());
        secret
    }

    #[test]
    fn helms_record_is_read_as_helm_writes_it() {
        let read = Record::of(&read(&secret("deployed")).expect("a record")).expect("a record");
        assert_eq!((read.revision, read.status.as_str(), read.objects.len()), (4, "deployed", 1));
        let mut broken = secret("deployed");
        broken.data = Some([(KEY.to_owned(), ByteString(b"?".to_vec()))].into());
        assert!(super::read(&broken).expect_err("refused").to_string().contains("base64"));
    }

    #[test]
    fn only_the_revision_that_was_installed_is_what_the_spec_asks_for() {
        let record = |status: &str| Record { revision: 4, status: status.to_owned(), objects: Vec::new() };
        assert_eq!(record("deployed").differs(Some(4)), None);
        for (status, own, expected) in [
            ("deployed", Some(3), "somebody else brought revision 4, after revision 3"),
            ("deployed", None, "somebody else brought revision 4"),
            ("failed", Some(3), "its newest revision 4 is `failed`"),
            ("failed", Some(4), "its newest revision 4 is `failed`"),
            ("uninstalled", Some(4), "its newest revision 4 is `uninstalled`"),
            ("pending-upgrade", Some(3), "its newest revision 4 is `pending-upgrade`: a Helm was cut off"),
        ] {
            assert_eq!(record(status).differs(own).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_a_helm_that_was_cut_off_left_is_marked_as_failed_and_nothing_else_changes() {
        for status in AT_WORK {
            let before = secret(status);
            let after = unlocked(before.clone(), read(&before).expect("a record"), 1_700_000_000).expect("packed");
            let after = after.expect("it was locked");
            let (mut old, new) = (read(&before).expect("a record"), read(&after).expect("a record"));
            assert_eq!(new["info"]["status"], "failed");
            assert_eq!(new["info"]["description"], format!("Helm was cut off while this was `{status}`"));
            old["info"] = new["info"].clone();
            assert_eq!(old, new);
            let labels = after.metadata.labels.expect("labels");
            assert_eq!((labels["status"].as_str(), labels["modifiedAt"].as_str()), ("failed", "1700000000"));
            assert_eq!((labels["version"].as_str(), labels["team"].as_str(), labels.len()), ("4", "a", 6));
            // Whoever wrote the record meanwhile goes first.
            assert_eq!((after.metadata.resource_version.as_deref(), after.type_), (Some("7"), before.type_));
        }
        for status in ["deployed", "failed", "superseded", "uninstalled"] {
            let before = secret(status);
            let record = read(&before).expect("a record");
            assert_eq!(unlocked(before, record, 0).expect("packed"), None);
        }
    }
}
