//! Stages: what was made from the same inputs is not made twice.

use std::collections::BTreeMap;

use agent_api::release::Blob;
use anyhow::{Context, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Cache, WorkDir, hash};
use crate::host::flock;

/// What a stage is made from. Every input that can change the result must be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageKey {
    name: &'static str,
    text: String,
}

impl StageKey {
    /// A stage of that name; `revision` changes when the code that makes it changes its result.
    pub fn new(name: &'static str, revision: u32) -> Self {
        Self { name, text: format!("{name} {revision}\n") }
    }

    /// One more input.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        use std::fmt::Write;
        let _ = writeln!(self.text, "{name}={value}");
        self
    }

    fn id(&self) -> String {
        format!("{}-{}", self.name, &hash::bytes(self.text.as_bytes()).hex()[..32])
    }
}

/// What a stage made: files by name, and small facts beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// Files in the cache.
    pub files: BTreeMap<String, Blob>,
    /// Facts as JSON.
    #[serde(default)]
    pub facts: BTreeMap<String, serde_json::Value>,
}

impl Made {
    /// The file of that name.
    pub fn file(&self, name: &str) -> Result<&Blob> {
        self.files.get(name).with_context(|| format!("the stage made no file `{name}`"))
    }

    /// Bytes of its files. What is one file under several names counts once.
    pub fn bytes(&self) -> u64 {
        let each: BTreeMap<_, _> = self.files.values().map(|blob| (&blob.digest, blob.size)).collect();
        each.into_values().sum()
    }

    /// A fact, read as `T`.
    pub fn fact<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T> {
        let value = self.facts.get(name).with_context(|| format!("the stage has no fact `{name}`"))?;
        serde_json::from_value(value.clone()).with_context(|| format!("reading the fact `{name}`"))
    }

    /// The same with one more fact.
    pub fn set_fact(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        self.facts.insert(name.to_owned(), serde_json::to_value(value)?);
        Ok(())
    }
}

/// The stage is not in a cache that is only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stage is not in the cache")]
pub struct NotMade;

impl Cache {
    /// What the stage made before, when all of it is still there and whole.
    pub fn recall(&self, key: &StageKey) -> Result<Option<Made>> {
        let path = self.path("stages").join(format!("{}.json", key.id()));
        let Ok(text) = fs_err::read(&path) else { return Ok(None) };
        let Ok(made) = serde_json::from_slice::<Made>(&text) else { return Ok(None) };
        let whole = made.files.par_iter().map(|(_, blob)| self.holds(blob)).collect::<Result<Vec<_>>>()?;
        Ok(whole.into_iter().all(|whole| whole).then_some(made))
    }

    /// Recalls the stage or makes it. `build` gets an empty folder; `waiting` is called when another build is
    /// making the same.
    pub fn stage(
        &self,
        key: &StageKey,
        waiting: &mut dyn FnMut(),
        build: impl FnOnce(&WorkDir) -> Result<Made>,
    ) -> Result<(Made, bool)> {
        if let Some(made) = self.recall(key)? {
            return Ok((made, true));
        }
        if self.looking {
            return Err(NotMade.into());
        }
        let lock = self.path("locks").join(key.id());
        let _held = flock::lock(&lock, waiting)?;
        if let Some(made) = self.recall(key)? {
            return Ok((made, true));
        }
        let work = self.work_dir()?;
        let made = build(&work)?;
        let text = serde_json::to_vec_pretty(&made)?;
        let file = work.path().join("stage.json");
        fs_err::write(&file, text)?;
        fs_err::File::open(&file)?.sync_all()?;
        fs_err::rename(&file, self.path("stages").join(format!("{}.json", key.id())))?;
        Ok((made, false))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Made, StageKey};

    #[test]
    fn one_file_under_several_names_counts_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let mut made = Made::default();
        for (name, bytes) in [("kubelet", "kubernetes"), ("kubeadm", "kubernetes"), ("crictl", "0123456789")] {
            made.files.insert(name.to_owned(), cache.adopt_bytes(bytes.as_bytes()).expect("a blob"));
        }
        assert_eq!(made.bytes(), 20);
    }

    #[test]
    fn a_stage_is_made_once_and_again_after_damage() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let key = StageKey::new("test", 1).with("input", 7);
        let mut runs = 0;
        let mut run = || {
            let (made, cached) = cache
                .stage(&key, &mut || (), |_| {
                    runs += 1;
                    let mut made = Made::default();
                    made.files.insert("a".into(), cache.adopt_bytes(b"result")?);
                    Ok(made)
                })
                .expect("made");
            (made, cached)
        };
        let (first, cached) = run();
        assert!(!cached);
        assert_eq!(run(), (first.clone(), true));
        let path = cache.blob_path(&first.files["a"].digest);
        fs_err::remove_file(&path).expect("removed");
        assert_eq!(run(), (first, false));
        assert_eq!(runs, 2);
    }
}
