//! Which output lies where: one that is there already, and would come out the same, is not written again.
//!
//! The plan's cache folder keeps one record for each place that an output was written to: what it was made of, and what
//! its inode said then. An output that anybody has touched since is written anew.

use std::io;
use std::path::{Path, PathBuf};

use agent_api::menu::MenuEntry;
use fs_err as fs;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Format, FormatError, ImagePlan, OutputFile, output_path};
use crate::boot::{BootEntries, BootEntry, esp, grub};
use crate::disk::{Content, SourceFile, Tools};
use crate::host::files::{directory_of, write_whole};
use crate::store::Stamp;

/// What is known about an output.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Hex sha256 of all that decides its bytes.
    inputs: String,
    /// Hex sha256 of its bytes.
    sha256: String,
    /// Its inode.
    stamp: Stamp,
}

/// The output of `plan`, when it lies at its place just as [`write`](super::write) left it.
pub fn recall(format: Format, plan: &ImagePlan, tools: &dyn Tools) -> Result<Option<OutputFile>, FormatError> {
    let file = output_path(format, plan);
    let Ok(stamp) = Stamp::of(&file) else { return Ok(None) };
    let Ok(text) = fs::read(record_path(&plan.cache, &file)?) else { return Ok(None) };
    let Ok(record) = serde_json::from_slice::<Record>(&text) else { return Ok(None) };
    if record.stamp != stamp || record.inputs != inputs(format, plan, tools)? {
        return Ok(None);
    }
    Ok(Some(OutputFile { format, file, bytes: stamp.bytes, sha256: record.sha256 }))
}

/// Remembers an output that was just written, its stamp, and the [`inputs`] from before it was.
pub(super) fn keep(file: &OutputFile, stamp: Stamp, inputs: String, plan: &ImagePlan) -> Result<(), FormatError> {
    let record = Record { inputs, sha256: file.sha256.clone(), stamp };
    Ok(put(&record_path(&plan.cache, &file.file)?, &record)?)
}

/// Remembers that an output was changed on purpose since it had the stamp `before`: it stays the one that is there.
/// Nothing is remembered of a file that was no such output then.
pub fn follow(cache: &Path, output: &Path, before: Stamp) -> io::Result<()> {
    let path = record_path(cache, output)?;
    let Ok(text) = fs::read(&path) else { return Ok(()) };
    let Ok(mut record) = serde_json::from_slice::<Record>(&text) else { return Ok(()) };
    if record.stamp != before {
        return Ok(());
    }
    let mut file = fs::File::open(output)?;
    record.stamp = Stamp::from(&file.metadata()?);
    record.sha256 = super::hash(&mut file)?;
    put(&path, &record)
}

fn put(path: &Path, record: &Record) -> io::Result<()> {
    write_whole(path, &serde_json::to_vec(record)?)
}

fn record_path(cache: &Path, output: &Path) -> io::Result<PathBuf> {
    let place = fs::canonicalize(directory_of(output))?.join(output.file_name().unwrap_or_default());
    let name = hex::encode(&Sha256::digest(place.as_os_str().as_encoded_bytes())[..16]);
    Ok(cache.join(format!("output-{name}.json")))
}

/// Digest of all that decides an output's bytes. A field that is added to the plan has to be added here.
pub(super) fn inputs(format: Format, plan: &ImagePlan, tools: &dyn Tools) -> Result<String, FormatError> {
    let ImagePlan {
        release_id,
        built,
        name,
        version,
        store,
        entries,
        site,
        virtual_bytes,
        max_bytes,
        compression,
        cache: _,
        out: _,
    } = plan;
    let mut all = Inputs(Sha256::new());
    all.text(&format!("{format:?} {release_id} {built} {virtual_bytes:?} {max_bytes:?} {compression:?}"));
    all.text(&format!("{name} {version}"));
    all.builder()?;
    all.files("store", store)?;
    all.files("site", site)?;
    all.entries(entries)?;
    all.files("loader", &esp::loader_files(entries, tools)?)?;
    for path in grub::inputs(tools) {
        all.path(&path)?;
    }
    Ok(hex::encode(all.0.finalize()))
}

struct Inputs(Sha256);

impl Inputs {
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// The program itself: another builder may write other bytes.
    fn builder(&mut self) -> io::Result<()> {
        // Also when another one has taken its place on the disk since it was started.
        let program = fs::metadata("/proc/self/exe")?;
        self.text(&format!("{} {:?}", program.len(), program.modified()?));
        Ok(())
    }

    fn files(&mut self, what: &str, files: &[SourceFile]) -> io::Result<()> {
        self.text(&format!("{what} {}", files.len()));
        for file in files {
            self.text(&file.path);
            match &file.content {
                Content::Bytes(bytes) | Content::Reserved(bytes) => self.text(&hex::encode(Sha256::digest(bytes))),
                Content::File { path, bytes: _ } => self.path(path)?,
            }
        }
        Ok(())
    }

    fn entries(&mut self, entries: &BootEntries) -> io::Result<()> {
        let BootEntries { current, previous, consoles } = entries;
        self.text(&consoles.join(" "));
        for entry in [Some(current), previous.as_ref()] {
            let Some(BootEntry { entry: MenuEntry { release_id, title, parameters }, kernel, initrd }) = entry else {
                self.text("none");
                continue;
            };
            self.text(&format!("{release_id} {title} {parameters:?}"));
            self.path(kernel)?;
            self.path(initrd)?;
        }
        Ok(())
    }

    /// A source by where it lies and what its inode says.
    fn path(&mut self, path: &Path) -> io::Result<()> {
        self.text(&path.to_string_lossy());
        self.text(&format!("{:?}", Stamp::of(path)?));
        Ok(())
    }
}
