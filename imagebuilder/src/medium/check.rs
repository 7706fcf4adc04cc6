//! Every byte of the releases on a medium against what they say.

use std::collections::BTreeMap;
use std::io;

use agent_api::proof::PROOF;
use agent_api::release::{Blob, Digest, Layer, Release, SBOM};
use sha2::{Digest as _, Sha256};

use super::bytes::Bytes;
use super::keys::{Keys, Verdict};
use super::proof::State;
use super::{Found, Medium};
use crate::boot::esp;
use crate::boot::files::{BOOT_FILES, BootFiles};
use crate::error::Interrupted;
use crate::format::Format;
use crate::layer::verity::{self, Verity};
use crate::problems::Flaw;
use crate::release::{sbom, sign};

/// Bytes read and hashed at a time.
const CHUNK: usize = 1 << 20;

/// One release that was checked.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Its files.
    pub found: Found,
    /// What it says, when it can be read.
    pub release: Option<Release>,
    /// What starts it, when that can be read.
    pub boot_files: Option<BootFiles>,
    /// What its signature is worth.
    pub verdict: Verdict,
    /// What there is of a proof.
    pub proof: State,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The releases.
    pub releases: Vec<Checked>,
    /// Everything that is wrong.
    pub problems: Vec<Flaw>,
    /// Files that were read.
    pub files: usize,
    /// Bytes that were read.
    pub bytes: u64,
}

/// A file of the medium and what it must be.
struct Wanted {
    place: String,
    file: Where,
    /// `None` for a blob of no release, whose name still says its digest.
    size: Option<u64>,
    digest: Digest,
    needed_by: Vec<String>,
    layers: Vec<Layer>,
}

enum Where {
    Store,
    Boot { folder: String, name: &'static str },
    Esp(String),
    CdMenu,
    BiosCode,
    BiosCore,
}

/// Told how many bytes of how many were read; ends the check by an error.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<(), Interrupted> + 'a;

/// Checks everything. Only an interruption ends it early.
pub fn check(medium: &Medium, keys: &Keys, progress: &mut Progress<'_>) -> Result<Findings, Interrupted> {
    let mut findings = Findings::default();
    let problem = |place: &str, found: String| Flaw { place: place.to_owned(), found, needed_by: Vec::new() };
    findings.problems.extend(medium.flaws.iter().map(|flaw| problem("image", flaw.clone())));
    let releases = medium.releases().unwrap_or_else(|error| {
        findings.problems.push(problem("releases", error.to_string()));
        Vec::new()
    });
    if releases.is_empty() && findings.problems.is_empty() {
        findings.problems.push(problem("releases", "there is no release in `foothold/releases`".to_owned()));
    }
    for found in releases {
        let (checked, problems) = check_release(medium, found, keys);
        findings.releases.push(checked);
        findings.problems.extend(problems);
    }
    let wanted = wanted(medium, &findings.releases, &mut findings.problems);
    let mut watch = Watch { done: 0, total: wanted.iter().map(|wanted| wanted.cost(medium)).sum(), progress };
    for wanted in &wanted {
        findings.problems.extend(wanted.check(medium, &mut watch)?);
        findings.files += 1;
    }
    findings.bytes = watch.done;
    Ok(findings)
}

/// Id and signature.
fn check_release(medium: &Medium, found: Found, keys: &Keys) -> (Checked, Vec<Flaw>) {
    let mut problems = Vec::new();
    let mut add = |file: &str, text: String| {
        let place = format!("`foothold/releases/{}/{file}`", found.folder);
        problems.push(Flaw { place, found: text, needed_by: Vec::new() });
    };
    let id = found.id();
    if id.hex() != found.folder {
        add("release.json", format!("it was changed: its sha256 is {}, its folder is named after another", id.hex()));
    }
    let release = found.release().map_err(|error| add("release.json", format!("it cannot be read: {error}"))).ok();
    let verdict = Verdict::of(medium, &found, keys);
    if let Some(fault) = &verdict.fault {
        add("release.json.minisig", fault.replace("\nhint: ", "; "));
    }
    let boot_files = check_boot_files(&found, &verdict).map_err(|fault| add(BOOT_FILES, fault)).ok();
    let proof = State::of(&found, &verdict);
    if let Some(fault) = proof.fault() {
        add(PROOF, format!("{fault}; the release is not touched by that, `foothold prove` makes another"));
    }
    if let Some(fault) = sbom_fault(&found, &verdict) {
        add(SBOM, fault);
    }
    (Checked { found, release, boot_files, verdict, proof }, problems)
}

/// The list of what starts a release, when it is this release's and signed with the same key.
fn check_boot_files(found: &Found, verdict: &Verdict) -> Result<BootFiles, String> {
    let (json, signature) = found.boot_files.as_ref().ok_or("it or its signature is missing")?;
    if let Some(key) = &verdict.key {
        sign::verify(&key.text, json, signature).map_err(|error| format!("{error:#}"))?;
    }
    let files: BootFiles = serde_json::from_slice(json).map_err(|error| format!("it cannot be read: {error}"))?;
    if files.release != found.folder {
        return Err(format!("it belongs to the release {}", files.release));
    }
    Ok(files)
}

/// What is wrong with the list of what is in the release.
fn sbom_fault(found: &Found, verdict: &Verdict) -> Option<String> {
    let (json, signature) = found.sbom.as_ref()?;
    if let Some(Err(error)) = verdict.key.as_ref().map(|key| sign::verify(&key.text, json, signature)) {
        return Some(format!("{error:#}"));
    }
    let belongs = sbom::release_of(json).is_some_and(|release| release == found.folder);
    (!belongs).then(|| "it does not belong to this release".to_owned())
}

/// What firmware starts.
fn wanted_to_start(medium: &Medium, files: &BootFiles) -> Vec<Wanted> {
    let cd = medium.format == Format::Iso;
    let (esp, bios) = if cd { ("the CD's ESP image", &files.cd) } else { ("the partition `ESP`", &files.disk) };
    let mut wanted = Vec::new();
    for (path, blob) in &files.esp {
        wanted.push(Wanted::of(format!("`{path}` in {esp}"), Where::Esp(path.clone()), blob, "starting with UEFI"));
        if cd && path == esp::GRUB_CFG {
            wanted.push(Wanted::of(format!("`{path}` of the CD"), Where::CdMenu, blob, "starting with BIOS"));
        }
    }
    let mut add = |place: &str, file, blob| wanted.push(Wanted::of(place.to_owned(), file, blob, "starting with BIOS"));
    add("the code of the master boot record", Where::BiosCode, &bios.code);
    add(if cd { "the CD's boot image for BIOS" } else { "GRUB's core image" }, Where::BiosCore, &bios.core);
    wanted
}

/// Every file that is to be read: each once, whoever needs it.
fn wanted(medium: &Medium, releases: &[Checked], problems: &mut Vec<Flaw>) -> Vec<Wanted> {
    let mut boot = Vec::new();
    let mut blobs: BTreeMap<String, Wanted> = BTreeMap::new();
    for checked in releases {
        boot.extend(checked.boot_files.iter().flat_map(|files| wanted_to_start(medium, files)));
        let Some(release) = &checked.release else { continue };
        for entry in &release.boot {
            for (name, blob) in [("vmlinuz", &entry.kernel), ("initrd", &entry.initrd)] {
                let file = Where::Boot { folder: checked.found.folder.clone(), name };
                let place = format!("`foothold/boot/{}/{name}`", checked.found.folder.get(..16).unwrap_or_default());
                boot.push(Wanted::of(place, file, blob, &format!("boot entry `{}`", entry.name)));
            }
        }
        for layer in &release.layers {
            let blob = Blob { digest: layer.digest.clone(), size: layer.size };
            let user = format!("layer `{}`", layer.name);
            need(&mut blobs, &blob, &user).layers.push(layer.clone());
        }
        for image in &release.images {
            for blob in &image.blobs {
                need(&mut blobs, blob, &format!("image `{}`", image.reference));
            }
        }
        for file in &release.content {
            if let Some(blob) = file.blob() {
                need(&mut blobs, &blob, &format!("file `{}`", file.path));
            }
        }
    }
    let names = medium.blob_names().unwrap_or_else(|error| {
        problems.push(Flaw { place: "`foothold/store`".to_owned(), found: error.to_string(), needed_by: Vec::new() });
        Vec::new()
    });
    for name in names {
        match Digest::from_hex(&name) {
            Ok(digest) => {
                blobs.entry(name).or_insert_with_key(|name| Wanted {
                    place: format!("blob sha256:{name}, which no release names"),
                    file: Where::Store,
                    size: None,
                    digest,
                    needed_by: Vec::new(),
                    layers: Vec::new(),
                });
            }
            Err(_) => problems.push(Flaw {
                place: format!("`foothold/store/sha256/{name}`"),
                found: "its name is no digest: it does not belong there".to_owned(),
                needed_by: Vec::new(),
            }),
        }
    }
    boot.into_iter().chain(blobs.into_values()).collect()
}

fn need<'a>(blobs: &'a mut BTreeMap<String, Wanted>, blob: &Blob, user: &str) -> &'a mut Wanted {
    let place = || format!("blob {}", blob.digest);
    let wanted =
        blobs.entry(blob.digest.hex().to_owned()).or_insert_with(|| Wanted::of(place(), Where::Store, blob, user));
    if !wanted.needed_by.iter().any(|known| known == user) {
        wanted.needed_by.push(user.to_owned());
    }
    wanted
}

/// How far it is.
struct Watch<'a, 'b> {
    done: u64,
    total: u64,
    progress: &'a mut Progress<'b>,
}

impl Watch<'_, '_> {
    fn add(&mut self, bytes: usize) -> Result<(), Interrupted> {
        self.done += bytes as u64;
        (self.progress)(self.done, self.total.max(self.done))
    }
}

impl Wanted {
    fn of(place: String, file: Where, blob: &Blob, user: &str) -> Self {
        let needed_by = vec![user.to_owned()];
        Self { place, file, size: Some(blob.size), digest: blob.digest.clone(), needed_by, layers: Vec::new() }
    }

    fn open(&self, medium: &Medium) -> io::Result<Option<Box<dyn Bytes>>> {
        match &self.file {
            Where::Store => medium.blob(&self.digest),
            Where::Boot { folder, name } => medium.boot_file(folder, name),
            Where::Esp(path) => medium.esp_file(path),
            Where::CdMenu => medium.cd_menu(),
            Where::BiosCode => medium.bios_code(self.size.unwrap_or_default()),
            Where::BiosCore => medium.bios_core(self.size.unwrap_or_default()),
        }
    }

    /// Bytes that will be read.
    fn cost(&self, medium: &Medium) -> u64 {
        self.size.unwrap_or_else(|| self.open(medium).ok().flatten().map_or(0, |file| file.size()))
    }

    fn problem(&self, found: String) -> Flaw {
        Flaw { place: self.place.clone(), found, needed_by: self.needed_by.clone() }
    }

    fn check(&self, medium: &Medium, watch: &mut Watch<'_, '_>) -> Result<Vec<Flaw>, Interrupted> {
        match self.open(medium) {
            Ok(Some(file)) => self.check_file(&*file, watch),
            Ok(None) => Ok(vec![self.problem("it is missing".to_owned())]),
            Err(error) => Ok(vec![self.problem(format!("it cannot be read: {error}"))]),
        }
    }

    fn check_file(&self, file: &dyn Bytes, watch: &mut Watch<'_, '_>) -> Result<Vec<Flaw>, Interrupted> {
        if let Some(size) = self.size.filter(|size| *size != file.size()) {
            return Ok(vec![self.problem(format!("it has {} bytes, {size} expected", file.size()))]);
        }
        let found = match digest_of(file, watch)? {
            Ok(found) => found,
            Err(error) => return Ok(vec![self.problem(format!("it cannot be read: {error}"))]),
        };
        let faults = self.layers.iter().filter_map(|layer| Some((layer, verity_fault(file, layer)?)));
        let mut problems: Vec<_> = faults
            .map(|(layer, found)| {
                let place = format!("layer `{}` ({})", layer.name, self.place);
                Flaw { place, found, needed_by: Vec::new() }
            })
            .collect();
        // A damaged block says more than two digests.
        if problems.is_empty() && found != *self.digest.hex() {
            let expected = self.digest.hex();
            problems.push(self.problem(format!("it was changed: its sha256 is {found}, {expected} expected")));
        }
        Ok(problems)
    }
}

/// Hex sha256 of a file; the inner error is one of reading.
fn digest_of(file: &dyn Bytes, watch: &mut Watch<'_, '_>) -> Result<io::Result<String>, Interrupted> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < file.size() {
        let length = usize::try_from(file.size() - at).unwrap_or(CHUNK).min(CHUNK);
        if let Err(error) = file.read_at(at, &mut buffer[..length]) {
            return Ok(Err(error));
        }
        hash.update(&buffer[..length]);
        at += length as u64;
        watch.add(length)?;
    }
    Ok(Ok(hex::encode(hash.finalize())))
}

/// What dm-verity will say about the layer, in words that name the block.
fn verity_fault(file: &dyn Bytes, layer: &Layer) -> Option<String> {
    let expected = Verity {
        data_bytes: layer.data_bytes,
        root_hash: layer.root_hash.clone(),
        salt: layer.salt.clone(),
        total_bytes: layer.size,
    };
    let mut read = |at: u64, buffer: &mut [u8]| file.read_at(at, buffer);
    verity::check_with(&mut read, file.size(), &expected).err().map(|error| error.to_string())
}
