//! Images from here: an OCI layout (folder or tar), or an archive of `docker save`.
//!
//! ```text
//! tar, tar.gz, tar.zst ─unpacked─► folder ─┬─ index.json ──► blobs as they are
//!                                          └─ manifest.json ► layers packed anew, an OCI manifest made
//! ```
//! What is not an image's (attestations, other platforms) stays behind.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use agent_api::image::ImageName;
use agent_api::oci::{self, Descriptor, ImageIndex, Saved};
use agent_api::release::{Blob, Digest};
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::manifest::{self, Config, Packing};
use super::verify;
use crate::lock::images::{LockedImage, Piece};
use crate::oci::recipe;
use crate::report::shell_word;
use crate::rootfs::inside;
use crate::store::{Cache, WorkDir, hash};

/// Annotation by which `BuildKit` says what an entry is for.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// An image that was taken out of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// What it is.
    pub image: LockedImage,
    /// What the archive itself calls it, where that is something else.
    pub called: Vec<String>,
}

/// Takes the image `name` out of `from` into the cache.
pub fn import(cache: &Cache, from: &Path, name: &ImageName) -> Result<Imported> {
    let work = cache.work_dir()?;
    let folder = if from.is_dir() { from.to_owned() } else { unpack(from, &work)? };
    let place = Place { cache, work: &work, folder: &folder, from };
    let locked = if folder.join(oci::LAYOUT_FILE).is_file() {
        place.layout(name)
    } else if folder.join(oci::SAVED_FILE).is_file() {
        place.docker(name)
    } else {
        let hint = "`skopeo copy docker://REF oci-archive:FILE` or `docker save -o FILE REF` makes one";
        bail!("`{}` is neither an OCI layout nor an archive of `docker save`\nhint: {hint}", from.display())
    };
    let imported = locked.with_context(|| format!("reading `{}`", from.display()))?;
    if let Some(digest) = &name.digest {
        let found = [&imported.image.top().digest, &imported.image.manifest.digest];
        ensure!(found.contains(&digest), "`{}` holds {}, `{name}` is expected", from.display(), found[0]);
    }
    Ok(imported)
}

/// The same once more, for a lock that names it already.
pub fn again(cache: &Cache, from: &Path, name: &ImageName, locked: &LockedImage) -> Result<()> {
    let found = import(cache, from, name)?.image;
    ensure!(
        found == *locked,
        "`{}` holds {} as `{name}`, the lock expects {}\nhint: bring the file back, or move the lock: `foothold lock \
         --update`",
        from.display(),
        found.top().digest,
        locked.top().digest
    );
    Ok(())
}

/// An unpacked archive.
struct Place<'a> {
    cache: &'a Cache,
    work: &'a WorkDir,
    folder: &'a Path,
    from: &'a Path,
}

impl Place<'_> {
    /// An OCI image layout (OCI image specification, image-layout.md).
    fn layout(&self, name: &ImageName) -> Result<Imported> {
        let index: ImageIndex = serde_json::from_slice(&fs_err::read(self.folder.join(oci::LAYOUT_FILE))?)?;
        let mut found: Vec<Found<&Descriptor>> = Vec::new();
        for entry in index.manifests.iter().filter(|entry| manifest::is_manifest(&entry.media_type)) {
            // Builders leave what they attest beside the image.
            let attests = entry.annotations.get(REFERENCE_TYPE).is_some_and(|kind| kind == "attestation-manifest");
            let known = found.iter_mut().find(|found| found.what.digest == entry.digest);
            let names = entry.names().map(str::to_owned);
            match known {
                _ if attests => {}
                Some(known) => known.names.extend(names),
                None => found.push(Found { what: entry, names: names.collect() }),
            }
        }
        let fits = |entry: &&Descriptor| manifest::is_for_the_box(entry, &mut |piece| self.blob(piece));
        let chosen = choose(name, &found, |entry| name.digest.as_ref() == Some(&entry.digest), &fits)?;
        let top = self.blob(&Piece::from(chosen.what))?;
        let image = manifest::resolve(&top, &mut |piece| self.blob(piece))?;
        for piece in image.pieces() {
            self.adopt(piece)?;
        }
        Ok(Imported { image, called: chosen.called(name) })
    }

    /// A small blob of a layout.
    fn blob(&self, piece: &Piece) -> Result<Vec<u8>> {
        let path = self.path(piece);
        ensure!(path.is_file(), "{} is missing", piece.digest);
        Ok(fs_err::read(path)?)
    }

    fn path(&self, piece: &Piece) -> PathBuf {
        self.folder.join(oci::blob_path(&piece.digest))
    }

    /// A blob of a layout into the cache.
    fn adopt(&self, piece: &Piece) -> Result<()> {
        if self.cache.holds(&piece.blob())? {
            return Ok(());
        }
        let path = self.path(piece);
        ensure!(path.is_file(), "{} is missing", piece.digest);
        let copy = self.work.path().join("blob");
        fs_err::copy(&path, &copy)?;
        let found = hash::file(&copy)?;
        ensure!(
            found == piece.blob(),
            "{} ({} bytes) is {} ({} bytes)",
            piece.digest,
            piece.size,
            found.digest,
            found.size
        );
        self.cache.adopt(&copy)?;
        Ok(())
    }

    /// An archive of `docker save`: plain layers, and a configuration that names them.
    fn docker(&self, name: &ImageName) -> Result<Imported> {
        let all: Vec<Saved> = serde_json::from_slice(&fs_err::read(self.folder.join(oci::SAVED_FILE))?)?;
        let mut found: Vec<Found<&Saved>> = Vec::new();
        for saved in &all {
            let names = saved.repo_tags.iter().flatten().cloned();
            match found.iter_mut().find(|found| found.what.config == saved.config) {
                Some(known) => known.names.extend(names),
                None => found.push(Found { what: saved, names: names.collect() }),
            }
        }
        let fits = |saved: &&Saved| {
            Ok(Config::parse(&fs_err::read(self.inside(Path::new(&saved.config))?)?)?.is_for_the_box())
        };
        let chosen = choose(name, &found, |_| false, &fits)?;
        let (saved, called) = (chosen.what, chosen.called(name));
        let config = fs_err::read(self.inside(Path::new(&saved.config))?)?;
        let ids = Config::read(&config)?.diff_ids().to_vec();
        ensure!(
            ids.len() == saved.layers.len(),
            "it has {} layers, its configuration names {}",
            saved.layers.len(),
            ids.len()
        );
        let config = piece(recipe::CONFIG, self.cache.adopt_bytes(&config)?);
        let mut packed: BTreeMap<&Digest, Piece> = BTreeMap::new();
        let mut layers = Vec::new();
        for (path, id) in saved.layers.iter().zip(&ids) {
            if !packed.contains_key(id) {
                packed.insert(id, self.layer(Path::new(path), id)?);
            }
            layers.push(packed[id].clone());
        }
        let document = json!({ "schemaVersion": 2, "mediaType": oci::MANIFEST, "config": config, "layers": layers });
        let manifest = piece(oci::MANIFEST, self.cache.adopt_bytes(&serde_json::to_vec(&document)?)?);
        Ok(Imported { image: LockedImage { index: None, inner: Vec::new(), manifest, config, layers }, called })
    }

    /// Packs a layer as those of our own images.
    fn layer(&self, path: &Path, id: &Digest) -> Result<Piece> {
        let source = self.inside(path)?;
        let plain = self.work.path().join("layer.tar");
        let mut reader = verify::reader(packing(&source)?, fs_err::File::open(&source)?)?;
        std::io::copy(&mut reader, &mut fs_err::File::create(&plain)?)?;
        let found = hash::file(&plain)?.digest;
        ensure!(found == *id, "the layer `{}` is {found}, the configuration says {id}", path.display());
        let packed = self.work.path().join("layer.tar.zst");
        recipe::compress(&plain, &packed)?;
        Ok(piece(recipe::LAYER, self.cache.adopt(&packed)?))
    }

    /// A file of the archive. Links (old `docker save` writes them) lead to other files of it.
    fn inside(&self, path: &Path) -> Result<PathBuf> {
        let root = fs_err::canonicalize(self.folder)?;
        let file = fs_err::canonicalize(root.join(path))?;
        ensure!(file.starts_with(&root), "`{}` names `{}` outside of it", self.from.display(), path.display());
        Ok(file)
    }
}

fn piece(media_type: &str, blob: Blob) -> Piece {
    Piece { media_type: media_type.to_owned(), digest: blob.digest, size: blob.size }
}

/// One image of an archive, and what it is called there.
struct Found<T> {
    what: T,
    names: Vec<String>,
}

impl<T> Found<T> {
    /// Whether one of its names is exactly this one.
    fn is_named(&self, name: &ImageName) -> bool {
        let same = |other: &ImageName| (&other.host, &other.path, &other.tag) == (&name.host, &name.path, &name.tag);
        self.names.iter().filter_map(|text| text.parse().ok()).any(|other| same(&other))
    }

    /// Whether one of its names is the tag of this one: OCI's annotation may hold nothing else.
    fn is_tagged(&self, name: &ImageName) -> bool {
        name.tag.as_ref().is_some_and(|tag| self.names.contains(tag))
    }

    /// Its names, if all of them are other ones.
    fn called(&self, name: &ImageName) -> Vec<String> {
        if name.tag.is_none() || self.is_named(name) || (self.is_tagged(name) && !self.has_whole_name()) {
            return Vec::new();
        }
        self.names.clone()
    }

    /// Whether one of its names is more than a tag.
    fn has_whole_name(&self) -> bool {
        self.names.iter().any(|text| text.contains(['/', ':']))
    }
}

/// The image that is meant: by its digest, by its whole name, by its tag, or as the only one; for several of them, those
/// of other platforms do not count.
fn choose<'a, T: Copy>(
    name: &ImageName,
    all: &'a [Found<T>],
    has_digest: impl Fn(&T) -> bool,
    fits: &dyn Fn(&T) -> Result<bool>,
) -> Result<&'a Found<T>> {
    let by = |is_it: &dyn Fn(&Found<T>) -> bool| -> Vec<&'a Found<T>> { all.iter().filter(|one| is_it(one)).collect() };
    let ways = [by(&|one| has_digest(&one.what)), by(&|one| one.is_named(name)), by(&|one| one.is_tagged(name))];
    let mut left = ways.into_iter().find(|found| !found.is_empty()).unwrap_or_else(|| all.iter().collect());
    if left.len() > 1 {
        let mut able = Vec::new();
        for one in left.iter().copied() {
            if fits(&one.what)? {
                able.push(one);
            }
        }
        if !able.is_empty() {
            left = able;
        }
    }
    if let [only] = left.as_slice() {
        return Ok(only);
    }
    let found: Vec<_> = all.iter().flat_map(|one| &one.names).map(|name| format!("`{name}`")).collect();
    let found = if found.is_empty() { "none of them has a name".to_owned() } else { found.join(", ") };
    let count = if all.is_empty() { "no image".to_owned() } else { format!("{} images", all.len()) };
    bail!(
        "it holds {count}, and not exactly one that is `{name}`: {found}\nhint: call it in the definition as the archive \
         does, or save it alone: `skopeo copy docker://{name} oci-archive:FILE`"
    )
}

/// What compressors that are not read here begin their files with, and the command that unpacks them.
const UNREAD: [(&[u8], &str, &str); 4] = [
    (b"\xfd7zXZ\0", "xz", "xz -d"),
    (b"BZh", "bzip2", "bzip2 -d"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// How a file is packed, by its first bytes (RFC 1952, section 2.3.1; RFC 8878, section 3.1.1).
fn packing(path: &Path) -> Result<Packing> {
    let mut magic = Vec::new();
    fs_err::File::open(path)?.take(6).read_to_end(&mut magic)?;
    if let Some((_, name, command)) = UNREAD.iter().find(|(start, ..)| magic.starts_with(start)) {
        bail!(
            "`{}` is packed with {name}, which is not read\nhint: unpack it first (`{command} {}`); plain, gzip and zstd are \
             read",
            path.display(),
            shell_word(path)
        );
    }
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        _ => Packing::Tar,
    })
}

/// Unpacks the files of an archive into a folder.
fn unpack(from: &Path, work: &WorkDir) -> Result<PathBuf> {
    let folder = work.path().join("unpacked");
    fs_err::create_dir(&folder)?;
    let broken = || format!("reading `{}` as a tar archive", from.display());
    let mut tar = tar::Archive::new(verify::reader(packing(from)?, fs_err::File::open(from)?)?);
    // Links are made last, so that no file is written through one.
    let mut links = Vec::new();
    for entry in tar.entries().with_context(broken)? {
        crate::host::cancel::check()?;
        let mut entry = entry.with_context(broken)?;
        let path = entry.path().with_context(broken)?.into_owned();
        ensure!(inside(&path), "`{}` names `{}` outside of it", from.display(), path.display());
        let (target, kind) = (folder.join(&path), entry.header().entry_type());
        if kind.is_file() {
            fs_err::create_dir_all(target.parent().context("a file lies in a folder")?)?;
            std::io::copy(&mut entry, &mut fs_err::File::create(&target)?).with_context(broken)?;
        } else if kind.is_symlink() || kind.is_hard_link() {
            let to = entry.link_name().with_context(broken)?.context("a link leads somewhere")?.into_owned();
            // A hard link is named from the top of the archive.
            let to = if kind.is_hard_link() {
                ensure!(inside(&to), "`{}` names `{}` outside of it", from.display(), to.display());
                folder.join(to)
            } else {
                to
            };
            links.push((target, to));
        }
    }
    for (target, to) in links {
        fs_err::create_dir_all(target.parent().context("a link lies in a folder")?)?;
        fs_err::os::unix::fs::symlink(to, &target)?;
    }
    Ok(folder)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
