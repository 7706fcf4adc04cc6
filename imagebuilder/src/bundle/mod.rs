//! The bundle that turns release A into release B: what B has and A has not, and a signed list of it.
//!
//! ```text
//! A ─ blobs ─┐
//!            ├─ plan (pure) ─▶ Bundle ─▶ tar: bundle.json, signature, files of the release, blobs
//! B ─ blobs ─┘
//! ```
//! Everything in it is signed twice: by the list, and by the release that the blobs belong to. The same two releases
//! and the same key give the same bytes.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;

use agent_api::bundle::{self, Bundle, File};
use agent_api::hash::Hashed;
use agent_api::proof::{self, PROOF};
use agent_api::release::{Blob, Digest, Release, SBOM};
use anyhow::{Context as _, Result, bail, ensure};

use crate::boot::files::BOOT_FILES;
use crate::error::Interrupted;
use crate::host::files::{directory_of, to_replace};
use crate::medium::bytes::{Bytes, Cursor};
use crate::medium::{Found, Medium};
use crate::release::sign::{self, Signer};
use crate::store::hash;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// Where a release is read from.
pub trait Source {
    /// Its files.
    fn found(&self) -> &Found;
    /// What it says.
    fn release(&self) -> &Release;
    /// A blob of its store, its kernel, or its initrd.
    fn blob(&self, digest: &Digest) -> io::Result<Option<Box<dyn Bytes>>>;
}

/// A release in an image.
pub struct InImage<'a> {
    /// The image.
    pub medium: &'a Medium,
    /// The release's files.
    pub found: &'a Found,
    /// The manifest.
    pub release: &'a Release,
}

impl Source for InImage<'_> {
    fn found(&self) -> &Found {
        self.found
    }

    fn release(&self) -> &Release {
        self.release
    }

    fn blob(&self, digest: &Digest) -> io::Result<Option<Box<dyn Bytes>>> {
        for entry in &self.release.boot {
            for (name, blob) in [("vmlinuz", &entry.kernel), ("initrd", &entry.initrd)] {
                if blob.digest == *digest {
                    return self.medium.boot_file(&self.found.folder, name);
                }
            }
        }
        self.medium.blob(digest)
    }
}

/// A bundle that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The list.
    pub bundle: Bundle,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Told bytes done and bytes in all; ends the writing by an error.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<(), Interrupted> + 'a;

/// Writes the bundle that turns `a` into `b` to `out`, which appears when it is whole.
pub fn write(
    a: &dyn Source,
    b: &dyn Source,
    signer: &Signer,
    out: &Path,
    progress: &mut Progress<'_>,
) -> Result<Written> {
    for side in [a, b] {
        let found = side.found();
        let signature = found.signature.as_deref().unwrap_or_default();
        sign::verify(&signer.public_key, &found.json, signature).with_context(|| {
            format!(
                "the release {} is not signed with your key: no box that runs it would take the bundle\nhint: \
                 `--key file:PATH` names the secret key that the definition's `sign.key` names",
                found.folder
            )
        })?;
    }
    ensure!(
        a.found().folder != b.found().folder,
        "both are the release {}: there is nothing to bundle",
        a.found().folder
    );
    ensure!(
        a.release().name == b.release().name,
        "`{}` and `{}` are two appliances, not two releases of one",
        a.release().name,
        b.release().name
    );
    let small = small_files(b.found());
    let list = plan(a.release(), b.release(), &a.found().folder, &b.found().folder, &small);
    let json = serde_json::to_vec_pretty(&list)?;
    let signature = signer.sign(&json, &format!("bundle from {} to {}", list.from, list.to))?;
    let out = &to_replace(out)?;
    let mut partial = tempfile::NamedTempFile::new_in(directory_of(out))?;
    let mut tar = Tar { out: BufWriter::with_capacity(CHUNK, &mut partial), time: b.release().built };
    tar.file(bundle::MANIFEST, &json)?;
    tar.file(bundle::SIGNATURE, signature.as_bytes())?;
    let (mut done, total) = (0, list.bytes());
    for file in &list.files {
        match small.iter().find(|(name, _)| file.path.ends_with(&format!("/{name}"))) {
            Some((_, bytes)) => {
                tar.file(&file.path, bytes)?;
                done += file.size;
            }
            None => tar.blob(b, file, &mut |count| {
                done += count;
                progress(done, total)
            })?,
        }
    }
    tar.finish()?;
    partial.as_file().sync_all()?;
    partial.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    let bytes = partial.as_file().metadata()?.len();
    partial.persist(out).map_err(|error| error.error).with_context(|| format!("writing `{}`", out.display()))?;
    Ok(Written { bundle: list, bytes })
}

/// Files of the release's folder. A place without a proof is nothing to send.
fn small_files(found: &Found) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("release.json".to_owned(), found.json.clone())];
    let mut signed = |name: &str, bytes: &[u8], signature: &str| {
        files.push((name.to_owned(), bytes.to_vec()));
        files.push((format!("{name}.minisig"), signature.as_bytes().to_vec()));
    };
    for (name, both) in [(BOOT_FILES, &found.boot_files), (SBOM, &found.sbom)] {
        if let Some((json, signature)) = both {
            signed(name, json, signature);
        }
    }
    files.extend(found.signature.as_ref().map(|text| ("release.json.minisig".to_owned(), text.clone().into_bytes())));
    let proved = |place: &&Vec<u8>| matches!(proof::read(place), proof::Place::Signed { .. });
    files.extend(found.proof.as_ref().filter(proved).map(|place| (PROOF.to_owned(), place.clone())));
    files
}

/// What B has and A has not: its own files, then blobs by digest.
fn plan(a: &Release, b: &Release, from: &str, to: &str, small: &[(String, Vec<u8>)]) -> Bundle {
    let has: BTreeSet<Digest> = bundle::blobs_of(a).into_iter().map(|blob| blob.digest).collect();
    let files = small.iter().map(|(name, bytes)| File {
        path: format!("releases/{to}/{name}"),
        digest: hash::bytes(bytes),
        size: bytes.len() as u64,
    });
    let blobs = bundle::blobs_of(b).into_iter().filter(|blob| !has.contains(&blob.digest));
    let blobs = blobs.map(|Blob { digest, size }| File { path: digest.store_path(), digest, size });
    Bundle {
        api_version: "foothold.dev/v1".to_owned(),
        kind: "Bundle".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        name: b.name.clone(),
        version: b.version.clone(),
        files: files.chain(blobs).collect(),
    }
}

/// A tar (POSIX.1-1988 ustar; GNU's numbers for files of 8 GiB and more) without anything of this machine in it.
struct Tar<W: Write> {
    out: W,
    time: u64,
}

impl<W: Write> Tar<W> {
    fn header(&mut self, path: &str, size: u64) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_path(path)?;
        header.set_size(size);
        header.set_mode(0o444);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let left = usize::try_from(size.next_multiple_of(512) - size).map_err(io::Error::other)?;
        self.out.write_all(&[0; 512][..left])
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.header(path, bytes.len() as u64)?;
        self.out.write_all(bytes)?;
        self.pad(bytes.len() as u64)
    }

    /// Copies a blob and checks it on the way: a bundle of a damaged image is none.
    fn blob(
        &mut self,
        from: &dyn Source,
        file: &File,
        progress: &mut dyn FnMut(u64) -> Result<(), Interrupted>,
    ) -> Result<()> {
        let damaged = || format!("the blob {} of the release {}", file.digest, from.found().folder);
        let source =
            from.blob(&file.digest).with_context(damaged)?.with_context(|| format!("{} is missing", damaged()))?;
        if source.size() != file.size {
            bail!("{} has {} bytes, {} expected", damaged(), source.size(), file.size);
        }
        self.header(&file.path, file.size)?;
        let mut source = Hashed::new(Cursor::new(source));
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = source.read(&mut buffer).with_context(damaged)?;
            if count == 0 {
                break;
            }
            self.out.write_all(&buffer[..count])?;
            progress(count as u64)?;
        }
        let found = source.finish().digest;
        let hint = "`foothold verify`";
        ensure!(found == file.digest, "{} is damaged: its sha256 is {}\nhint: {hint}", damaged(), found.hex());
        Ok(self.pad(file.size)?)
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 1024])?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Read as _;

    use agent_api::bundle::Bundle;

    use super::{InImage, plan, write};
    use crate::format::Format;
    use crate::medium::Medium;
    use crate::release::testbench::{Sample, signer};

    #[test]
    fn a_bundle_holds_what_the_second_release_has_alone() {
        let (a, mut b) = (Sample::new().release, Sample::new().release);
        // The samples differ by their keys, which lie in the initrd.
        let before: BTreeSet<_> = agent_api::bundle::blobs_of(&a).into_iter().map(|blob| blob.digest).collect();
        b.layers.clear();
        let small = [("release.json".to_owned(), b"{}".to_vec())];
        let list = plan(&a, &b, "aa", "bb", &small);
        assert_eq!(list.files[0].path, "releases/bb/release.json");
        assert_eq!(list.files.len(), 2);
        assert_eq!(list.files[1].digest, b.boot[0].initrd.digest);
        assert!(list.files[1..].iter().all(|file| !before.contains(&file.digest)));
    }

    #[test]
    fn two_images_make_a_signed_tar_the_same_each_time() {
        let a = Sample::new();
        let b = a.next(|release| {
            release.version = "1.5.0".to_owned();
            release.images.pop();
        });
        let images = [a.write(Format::Qcow2), b.write(Format::Iso)];
        let media = images.map(|image| Medium::open(&image).expect("a medium"));
        let found = media.each_ref().map(|medium| medium.releases().expect("readable").remove(0));
        let side = |at: usize| InImage { medium: &media[at], found: &found[at], release: [&a.release, &b.release][at] };
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("bundle");
        let bundle = |signer| write(&side(0), &side(1), signer, &out, &mut |_, _| Ok(()));
        let written = bundle(&a.signer).expect("written");
        let bytes = fs_err::read(&out).expect("reads");
        assert_eq!((written.bytes, bytes.len() % 512), (bytes.len() as u64, 0));
        let mut entries = tar::Archive::new(bytes.as_slice());
        let names: Vec<(String, Vec<u8>)> = entries
            .entries()
            .expect("a tar")
            .map(|entry| {
                let mut entry = entry.expect("an entry");
                let mut content = Vec::new();
                entry.read_to_end(&mut content).expect("reads");
                (entry.path().expect("a path").display().to_string(), content)
            })
            .collect();
        let list: Bundle = serde_json::from_slice(&names[0].1).expect("the list");
        assert_eq!(list, written.bundle);
        assert_eq!(list.foreign_path(), None);
        crate::release::sign::verify(&a.public_key, &names[0].1, &String::from_utf8_lossy(&names[1].1))
            .expect("signed");
        for (file, (name, content)) in list.files.iter().zip(&names[2..]) {
            assert_eq!((&file.path, &file.digest), (name, &crate::store::hash::bytes(content)));
        }
        assert_eq!(names.len(), 2 + list.files.len());
        bundle(&a.signer).expect("written again");
        assert!(fs_err::read(&out).expect("reads") == bytes);
        let other = tempfile::tempdir().expect("a folder");
        let refused = bundle(&signer(other.path())).expect_err("no box would take it");
        assert!(refused.to_string().contains("is not signed with your key"), "{refused:#}");
        assert_eq!(fs_err::read_dir(dir.path()).expect("the folder").count(), 1);
    }
}
