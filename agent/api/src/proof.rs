//! The proof of a release: what was measured when it was booted before it was shipped.
//!
//! It lies beside the manifest in a place of fixed size that the build reserves, so that adding it moves nothing:
//!
//! ```text
//! foothold/releases/<id>/proof.json   256 KiB: two lines of JSON, then blanks
//!   reserved  {"reservedFor":"<id>"}
//!   proved    {"apiVersion":...,"kind":"Proof","release":"<id>",...}     exactly the bytes that are signed
//!             {"signature":"untrusted comment: ..."}                     minisign, by the key of the release
//! ```
//! Half a proof has no good signature: it is no proof, and nothing else is touched by it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::json;

/// Name of the reserved file in the release's folder.
pub const PROOF: &str = "proof.json";
/// Its bytes.
pub const RESERVED: usize = 256 << 10;
/// Most requests to the registry that a proof lists of one start.
pub const MOST_REQUESTS: usize = 500;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proof {
    /// `foothold.dev/v1`.
    pub api_version: String,
    /// `Proof`.
    pub kind: String,
    /// Release id, 64 hex digits.
    pub release: String,
    /// Version of the builder that proved it.
    pub builder: String,
    /// When it was proved, RFC 3339, UTC.
    pub date: String,
    /// On what.
    pub machine: Machine,
    /// The image file that was booted.
    pub image: ImageFile,
    /// The first start.
    pub first_boot: Start,
    /// The second start of the same disk, after a power cut.
    pub reboot: Start,
    /// The definition's promises, each compared with what was measured.
    pub budgets: Vec<Budget>,
}

/// The machine of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// `kvm` or `tcg`.
    pub accel: String,
    /// Processors.
    pub cpus: u32,
    /// Memory.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// `bios`, `uefi` or `uefi-secure`.
    pub firmware: String,
    /// `none`: a proof has no network.
    pub network: String,
}

/// An image file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageFile {
    /// `raw`, `qcow2` or `iso`.
    pub format: String,
    /// Bytes of the file; of a raw image those that are no holes.
    pub bytes: u64,
}

/// One start, from power-on to `ready`. Times are seconds since power-on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// When the Node was Ready.
    pub node_ready_secs: f64,
    /// When every service answered.
    pub ready_secs: f64,
    /// What it took of memory and disk.
    pub usage: Usage,
    /// What the on-box registry was asked for, in order; [`MOST_REQUESTS`] at most.
    pub requests: Vec<Request>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// Memory and disk on the way to `ready`, and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Memory in use at `ready`.
    #[serde(rename = "memoryUsedMiB")]
    pub memory_used_mib: u64,
    /// Most memory in use until then.
    #[serde(rename = "memoryPeakMiB")]
    pub memory_peak_mib: u64,
    /// DATA in use at `ready`.
    #[serde(rename = "dataUsedMiB")]
    pub data_used_mib: u64,
    /// Most of DATA in use until then.
    #[serde(rename = "dataPeakMiB")]
    pub data_peak_mib: u64,
    /// Size of DATA.
    #[serde(rename = "dataTotalMiB")]
    pub data_total_mib: u64,
}

/// A request to the on-box registry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The image, or the path that was asked for.
    pub image: String,
    /// Seconds since power-on.
    pub t: f64,
    /// Whether it was there.
    pub found: bool,
}

/// A step of a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Phase.
    pub phase: String,
    /// Name.
    pub step: String,
    /// When it began, seconds since power-on.
    pub start: f64,
    /// Seconds it took.
    pub secs: f64,
}

impl Step {
    /// When it ended, seconds since power-on.
    pub fn end(&self) -> f64 {
        self.start + self.secs
    }
}

/// A promise and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Key in the definition's `budgets`: `image`, `memory`, `readyWithin`.
    pub name: String,
    /// `bytes` or `s`.
    pub unit: String,
    /// What was promised.
    pub limit: f64,
    /// What was measured.
    pub found: f64,
    /// Whether it was kept.
    pub kept: bool,
}

impl Proof {
    /// Most memory in use at either start.
    pub fn peak_memory_mib(&self) -> u64 {
        self.first_boot.usage.memory_peak_mib.max(self.reboot.usage.memory_peak_mib)
    }

    /// Most of DATA in use at either start.
    pub fn peak_data_mib(&self) -> u64 {
        self.first_boot.usage.data_peak_mib.max(self.reboot.usage.data_peak_mib)
    }
}

impl Budget {
    /// A promise that nothing is larger than `limit`.
    pub fn at_most(name: &str, unit: &str, limit: f64, found: f64) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned(), limit, found, kept: found <= limit }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: f64| match self.unit.as_str() {
            "bytes" => format!("{:.1} MiB", value / f64::from(1 << 20)),
            unit => format!("{value:.1} {unit}"),
        };
        let (found, limit, over) = (text(self.found), text(self.limit), text(self.found - self.limit));
        if self.kept {
            return write!(f, "`{}` is kept: {found} of {limit}", self.name);
        }
        write!(f, "`{}` is broken: {found}, {limit} promised, {over} too much", self.name)
    }
}

/// What lies in the reserved place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// No proof yet.
    Reserved,
    /// A proof; whether it is good is for the signature to say.
    Signed {
        /// The bytes that are signed.
        json: &'a str,
        /// Text of the signature file.
        signature: String,
    },
    /// Neither: a power cut while it was written, or damage.
    Broken,
}

#[derive(Deserialize)]
struct Signature {
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReservedFor {
    #[expect(dead_code, reason = "that it is there says what the line is")]
    reserved_for: String,
}

/// The place as the build makes it, for the release of that id.
pub fn reserve(id: &str) -> Vec<u8> {
    let mut bytes = format!("{}\n", json!({ "reservedFor": id })).into_bytes();
    bytes.resize(RESERVED, b' ');
    bytes
}

/// The place with a proof of one line of JSON in it; `None` when that does not fit.
pub fn place(json: &str, signature: &str) -> Option<Vec<u8>> {
    let mut bytes = format!("{json}\n{}\n", json!({ "signature": signature })).into_bytes();
    if json.contains('\n') || bytes.len() > RESERVED {
        return None;
    }
    bytes.resize(RESERVED, b' ');
    Some(bytes)
}

/// Reads the place.
pub fn read(bytes: &[u8]) -> Place<'_> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Place::Broken };
    let Some((json, rest)) = text.split_once('\n') else { return Place::Broken };
    if let Ok(Signature { signature }) = serde_json::from_str(rest.trim_end()) {
        return Place::Signed { json, signature };
    }
    let untouched = rest.bytes().all(|byte| byte == b' ') && serde_json::from_str::<ReservedFor>(json).is_ok();
    if untouched { Place::Reserved } else { Place::Broken }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Place, RESERVED, place, read, reserve};

    #[test]
    fn a_place_is_reserved_or_holds_a_proof_word_by_word() {
        let empty = reserve(&"ab".repeat(32));
        assert_eq!((empty.len(), read(&empty)), (RESERVED, Place::Reserved));
        let proved = place(r#"{"kind":"Proof","a":1.50}"#, "untrusted comment: x\nRUR\n").expect("it fits");
        assert_eq!(proved.len(), RESERVED);
        let signature = "untrusted comment: x\nRUR\n".to_owned();
        assert_eq!(read(&proved), Place::Signed { json: r#"{"kind":"Proof","a":1.50}"#, signature });
    }

    #[test]
    fn what_a_power_cut_leaves_is_no_proof() {
        let (before, after) =
            (reserve("00"), place(&format!("{{\"a\":\"{}\"}}", "x".repeat(9000)), "s").expect("fits"));
        for cut in (512..9000).step_by(512) {
            let torn = [&after[..cut], &before[cut..]].concat();
            assert_eq!(read(&torn), Place::Broken, "cut at {cut}");
            let torn = [&before[..cut], &after[cut..]].concat();
            assert!(!matches!(read(&torn), Place::Reserved), "cut at {cut}");
        }
        assert_eq!(read(b""), Place::Broken);
    }

    #[test]
    fn a_broken_budget_says_by_how_much() {
        let kept = Budget::at_most("readyWithin", "s", 60.0, 53.25);
        assert_eq!(kept.to_string(), "`readyWithin` is kept: 53.2 s of 60.0 s");
        let broken = Budget::at_most("memory", "bytes", 1_073_741_824.0, 1_207_959_552.0);
        assert_eq!(broken.to_string(), "`memory` is broken: 1152.0 MiB, 1024.0 MiB promised, 128.0 MiB too much");
    }

    #[test]
    fn a_proof_that_does_not_fit_is_refused() {
        assert_eq!(place(&"1".repeat(RESERVED), "s"), None);
        assert_eq!(place("{\n}", "s"), None);
    }
}
