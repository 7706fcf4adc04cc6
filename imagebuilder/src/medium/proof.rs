//! The proof in an image: what it says, what it is worth, and how it gets there.
//!
//! ```text
//! STORE or CD ─ proof.json ─▶ State
//! proof, signed ─▶ the same 256 KiB of the image file, replaced in place: nothing else is touched
//! ```

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use agent_api::proof::{self, Proof, RESERVED};
use agent_api::release::MEDIUM_ROOT;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::bytes::{self, Bytes};
use super::keys::Verdict;
use super::{Found, Medium};
use crate::release::sign;

/// Files begin at multiples of this, on disks and CDs.
const ALIGNMENT: usize = 2048;
/// Bytes searched at a time.
const CHUNK: usize = 1 << 20;
/// Pieces in which the file beneath is mapped: no cluster is smaller.
const PIECE: u64 = 512;

/// What there is of a proof.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The image was made by an earlier version: it has no place for one.
    NoPlace,
    /// Not proved yet.
    Absent,
    /// Proved, and signed with the key of the release.
    Valid(Box<Proof>),
    /// A proof of another release, or by somebody else.
    Foreign(String),
    /// No proof: it was damaged, or never written to its end.
    Broken(String),
}

impl State {
    /// Of a release on a medium.
    pub fn of(found: &Found, verdict: &Verdict) -> Self {
        let Some(bytes) = &found.proof else { return Self::NoPlace };
        match proof::read(bytes) {
            proof::Place::Reserved if *bytes == proof::reserve(&found.folder) => Self::Absent,
            proof::Place::Reserved => Self::Foreign("the place is reserved for another release".to_owned()),
            proof::Place::Broken => Self::Broken("the reserved place holds neither blanks nor a proof".to_owned()),
            proof::Place::Signed { json, signature } => Self::signed(found, verdict, json, &signature),
        }
    }

    fn signed(found: &Found, verdict: &Verdict, json: &str, signature: &str) -> Self {
        let Ok(proof) = serde_json::from_str::<Proof>(json) else {
            return Self::Broken("the proof cannot be read".to_owned());
        };
        if proof.release != found.folder {
            return Self::Foreign(format!("it proves the release {}", proof.release));
        }
        let Some(key) = &verdict.key else {
            return Self::Foreign("there is no key to check it with".to_owned());
        };
        match sign::verify(&key.text, json.as_bytes(), signature) {
            Ok(()) => Self::Valid(Box::new(proof)),
            Err(_) if sign::same_key(&key.text, signature) => {
                Self::Broken("its signature does not hold: the proof was changed".to_owned())
            }
            Err(_) => Self::Foreign("it was signed with another key than the release".to_owned()),
        }
    }

    /// What a check of the image has to say about it.
    pub fn fault(&self) -> Option<&str> {
        match self {
            Self::Foreign(fault) | Self::Broken(fault) => Some(fault),
            Self::NoPlace | Self::Absent | Self::Valid(_) => None,
        }
    }

    /// One line for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::NoPlace => "none, and no place for one: made by an earlier version".to_owned(),
            Self::Absent => "none yet (`foothold prove` makes it)".to_owned(),
            Self::Valid(proof) => {
                let machine = &proof.machine;
                format!(
                    "good: ready after {:.1} s, again after {:.1} s; {} processors, {} MiB, {}, {}; {}",
                    proof.first_boot.ready_secs,
                    proof.reboot.ready_secs,
                    machine.cpus,
                    machine.memory_mib,
                    machine.accel,
                    machine.firmware,
                    proof.date
                )
            }
            Self::Foreign(fault) => format!("FOREIGN: {fault}"),
            Self::Broken(fault) => format!("BROKEN: {fault}"),
        }
    }

    /// As data.
    pub fn json(&self) -> Value {
        match self {
            Self::NoPlace => json!({ "state": "no-place" }),
            Self::Absent => json!({ "state": "absent" }),
            Self::Valid(proof) => json!({ "state": "valid", "proof": proof }),
            Self::Foreign(fault) => json!({ "state": "foreign", "fault": fault }),
            Self::Broken(fault) => json!({ "state": "broken", "fault": fault }),
        }
    }
}

/// Where the reserved place of a release lies in the image file: offsets and lengths, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    folder: String,
    now: Vec<u8>,
    pieces: Vec<(u64, u64)>,
}

impl Reserved {
    /// Finds it. `None` when the image was made without one.
    pub fn find(medium: &Medium, found: &Found) -> Result<Option<Self>> {
        let Some(now) = found.proof.clone() else { return Ok(None) };
        ensure!(now.len() == RESERVED, "the place of the proof has {} bytes, {RESERVED} expected", now.len());
        let at = search(&*medium.disk, &now)?.context("the place of the proof is not in one piece")?;
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        for from in (at..at + RESERVED as u64).step_by(usize::try_from(PIECE)?) {
            let Some(place) = medium.disk.place(from)? else {
                bail!(
                    "the place of the proof is packed: the file was converted by another tool\nhint: prove the image \
                     that `foothold build` wrote, then convert it"
                );
            };
            match pieces.last_mut() {
                Some((start, length)) if *start + *length == place => *length += PIECE,
                _ => pieces.push((place, PIECE)),
            }
        }
        Ok(Some(Self { folder: found.folder.clone(), now, pieces }))
    }

    /// Replaces what lies there, reads it back through the image's file system, and takes it back when that differs.
    pub fn write(&self, image: &Path, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() == RESERVED, "a proof fills its place");
        self.put(image, bytes)?;
        let medium = Medium::open(image)?;
        let path = format!("{MEDIUM_ROOT}/releases/{}/{}", self.folder, proof::PROOF);
        if medium.stored(&path)?.is_some_and(|found| found == bytes) {
            return Ok(());
        }
        self.put(image, &self.now)?;
        bail!("the proof does not read back from `{}`, which is as it was before", image.display())
    }

    fn put(&self, image: &Path, mut bytes: &[u8]) -> io::Result<()> {
        let file = fs_err::OpenOptions::new().write(true).open(image)?;
        for (at, length) in &self.pieces {
            let (piece, rest) = bytes.split_at(usize::try_from(*length).map_err(io::Error::other)?);
            file.file().write_all_at(piece, *at)?;
            bytes = rest;
        }
        file.sync_all()
    }
}

/// Where on the disk `wanted` begins.
fn search(disk: &dyn Bytes, wanted: &[u8]) -> io::Result<Option<u64>> {
    let head = &wanted[..ALIGNMENT];
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < disk.size() {
        let length = usize::try_from(disk.size() - at).unwrap_or(CHUNK).min(CHUNK);
        disk.read_at(at, &mut buffer[..length])?;
        for (number, block) in buffer[..length].chunks_exact(ALIGNMENT).enumerate() {
            let here = at + (number * ALIGNMENT) as u64;
            if block == head && bytes::read(disk, here, wanted.len()).is_ok_and(|found| found == wanted) {
                return Ok(Some(here));
            }
        }
        at += length as u64;
    }
    Ok(None)
}
