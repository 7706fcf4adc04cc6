//! What the agent remembers across power cuts: which step was done with which inputs, and a few
//! decisions that must not change, such as the name of the node.
//!
//! One small JSON file in DATA, replaced whole: written beside, synced, renamed, folder synced. At
//! any instant of a power cut it is the old one or the new one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Step;
use crate::host::files;

/// The ledger of the box.
pub const PATH: &str = "/var/lib/foothold/ledger.json";

/// Digest of a step's inputs: a step recorded under another key is not current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(String);

impl Key {
    /// The key of these inputs, in this order.
    pub fn of<T: AsRef<[u8]>>(inputs: impl IntoIterator<Item = T>) -> Self {
        let mut hash = Sha256::new();
        for input in inputs {
            let input = input.as_ref();
            // The length keeps `ab`, `c` apart from `a`, `bc`.
            hash.update((input.len() as u64).to_le_bytes());
            hash.update(input);
        }
        Self(hex::encode(&hash.finalize()[..16]))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    /// `phase/step` -> key of its inputs.
    steps: BTreeMap<String, Key>,
    /// Decisions that stay.
    facts: BTreeMap<String, String>,
}

/// The open ledger.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    content: Mutex<Content>,
}

impl Ledger {
    /// Reads the ledger; none yet is an empty one. One that is no JSON (a damaged disk, never a
    /// power cut) is put aside as `ledger.json.damaged`: every step then looks for itself again.
    pub fn open(path: &Path) -> io::Result<Self> {
        let content = match fs_err::read(path) {
            Ok(bytes) => {
                if let Ok(content) = serde_json::from_slice(&bytes) {
                    content
                } else {
                    fs_err::rename(path, path.with_extension("json.damaged"))?;
                    Content::default()
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), content: Mutex::new(content) })
    }

    /// Whether the step was done with these inputs.
    pub fn is_current(&self, step: &Step, key: &Key) -> bool {
        self.lock().steps.get(&step.path()) == Some(key)
    }

    /// Whether the step was ever done, with whatever inputs.
    pub fn was_done(&self, step: &Step) -> bool {
        self.lock().steps.contains_key(&step.path())
    }

    /// Remembers that the step was done with these inputs. On the disk when it returns.
    pub fn step_done(&self, step: &Step, key: &Key) -> io::Result<()> {
        self.change(|content| content.steps.insert(step.path(), key.clone()) != Some(key.clone()))
    }

    /// A decision made earlier.
    pub fn fact(&self, name: &str) -> Option<String> {
        self.lock().facts.get(name).cloned()
    }

    /// Remembers a decision. On the disk when it returns.
    pub fn set_fact(&self, name: &str, value: &str) -> io::Result<()> {
        let value = value.to_owned();
        self.change(|content| content.facts.insert(name.to_owned(), value.clone()) != Some(value))
    }

    fn change(&self, change: impl FnOnce(&mut Content) -> bool) -> io::Result<()> {
        let mut content = self.lock();
        let mut next = content.clone();
        if !change(&mut next) {
            return Ok(());
        }
        fs_err::create_dir_all(self.path.parent().unwrap_or(Path::new("/")))?;
        files::replace(&self.path, &serde_json::to_vec_pretty(&next)?)?;
        *content = next;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // The content is replaced whole: a panic elsewhere leaves it valid.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agent_api::events::PhaseWord;

    use super::{Key, Ledger};
    use crate::host::files;
    use crate::steps::Step;

    const fn objects(phase: &'static str) -> Step {
        Step { phase: PhaseWord::new(phase), name: "objects", next: "", log: "" }
    }

    const ADDONS: Step = objects("addons");

    #[test]
    fn a_step_is_current_under_its_key_only_and_across_restarts() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.json");
        let (one, two) = (Key::of(["a", "bc"]), Key::of(["ab", "c"]));
        assert_ne!(one, two);
        let ledger = Ledger::open(&path).expect("a new ledger");
        assert!(!ledger.was_done(&ADDONS));
        ledger.step_done(&ADDONS, &one).expect("recorded");
        ledger.set_fact("node", "edge").expect("recorded");
        let again = Ledger::open(&path).expect("the ledger again");
        assert!(again.is_current(&ADDONS, &one));
        assert!(!again.is_current(&ADDONS, &two));
        assert!(!again.is_current(&objects("ready"), &one));
        assert_eq!(again.fact("node").as_deref(), Some("edge"));
    }

    #[test]
    fn what_a_power_cut_leaves_beside_does_not_matter() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.json");
        Ledger::open(&path).expect("new").set_fact("node", "edge").expect("recorded");
        fs_err::write(files::draft_of(&path), b"{\"steps\":").expect("half a file");
        assert_eq!(Ledger::open(&path).expect("again").fact("node").as_deref(), Some("edge"));
    }

    #[test]
    fn a_damaged_ledger_is_put_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.json");
        fs_err::write(&path, b"\0\0\0\0").expect("damage");
        assert_eq!(Ledger::open(&path).expect("an empty one").fact("node"), None);
        assert!(path.with_extension("json.damaged").exists());
    }
}
