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
use agent_api::release::{Blob, Digest};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;

use super::manifest::{self, Config, Entry, OCI_MANIFEST, Packing};
use super::verify;
use crate::lock::images::{LockedImage, Piece};
use crate::oci::recipe;
use crate::rootfs::inside;
use crate::store::{Cache, WorkDir, hash};

/// Annotations that name an image in a layout: containerd's, and OCI's (annotations.md).
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Takes the image `name` out of `from` into the cache.
pub fn import(cache: &Cache, from: &Path, name: &ImageName) -> Result<LockedImage> {
    let work = cache.work_dir()?;
    let folder = if from.is_dir() { from.to_owned() } else { unpack(from, &work)? };
    let place = Place { cache, work: &work, folder: &folder, from };
    let locked = if folder.join("index.json").is_file() {
        place.layout(name)
    } else if folder.join("manifest.json").is_file() {
        place.docker(name)
    } else {
        let hint = "`skopeo copy docker://REF oci-archive:FILE` or `docker save -o FILE REF` makes one";
        bail!("`{}` is neither an OCI layout nor an archive of `docker save`\nhint: {hint}", from.display())
    };
    let locked = locked.with_context(|| format!("reading `{}`", from.display()))?;
    if let Some(digest) = &name.digest {
        let found = [&locked.top().digest, &locked.manifest.digest];
        ensure!(found.contains(&digest), "`{}` holds {}, `{name}` is expected", from.display(), found[0]);
    }
    Ok(locked)
}

/// The same once more, for a lock that names it already.
pub fn again(cache: &Cache, from: &Path, name: &ImageName, locked: &LockedImage) -> Result<()> {
    let found = import(cache, from, name)?;
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

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Entry>,
}

/// An image in `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<PathBuf>,
}

impl Place<'_> {
    /// An OCI image layout (OCI image specification, image-layout.md).
    fn layout(&self, name: &ImageName) -> Result<LockedImage> {
        let index: Index = serde_json::from_slice(&fs_err::read(self.folder.join("index.json"))?)?;
        let entries: Vec<&Entry> =
            index.manifests.iter().filter(|entry| manifest::is_manifest(&entry.media_type)).collect();
        let entry = choose(name, &entries, |entry| NAMES.iter().filter_map(|key| entry.annotations.get(*key)))?;
        let top = self.blob(&entry.piece())?;
        let locked = manifest::resolve(&top, &mut |piece| self.blob(piece))?;
        for piece in locked.pieces() {
            self.adopt(piece)?;
        }
        Ok(locked)
    }

    /// A small blob of a layout.
    fn blob(&self, piece: &Piece) -> Result<Vec<u8>> {
        let path = self.path(piece);
        ensure!(path.is_file(), "{} is missing", piece.digest);
        Ok(fs_err::read(path)?)
    }

    fn path(&self, piece: &Piece) -> PathBuf {
        self.folder.join("blobs/sha256").join(piece.digest.hex())
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
    fn docker(&self, name: &ImageName) -> Result<LockedImage> {
        let all: Vec<Saved> = serde_json::from_slice(&fs_err::read(self.folder.join("manifest.json"))?)?;
        let all: Vec<&Saved> = all.iter().collect();
        let saved = choose(name, &all, |saved| saved.repo_tags.iter().flatten())?;
        let config = fs_err::read(self.inside(&saved.config)?)?;
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
                packed.insert(id, self.layer(path, id)?);
            }
            layers.push(packed[id].clone());
        }
        let document = json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers });
        let manifest = piece(OCI_MANIFEST, self.cache.adopt_bytes(&serde_json::to_vec(&document)?)?);
        Ok(LockedImage { index: None, manifest, config, layers })
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

/// The only image, or the one of several that has the name.
fn choose<'a, T, N>(name: &ImageName, all: &[&'a T], names: impl Fn(&'a T) -> N) -> Result<&'a T>
where
    N: Iterator<Item = &'a String>,
{
    if let [only] = all {
        return Ok(only);
    }
    let is_it = |text: &String| text.parse::<ImageName>().as_ref() == Ok(name) || name.tag.as_ref() == Some(text);
    let fits: Vec<_> = all.iter().filter(|one| names(one).any(is_it)).collect();
    if let [only] = fits.as_slice() {
        return Ok(only);
    }
    let found: Vec<_> = all.iter().flat_map(|one| names(one)).map(|name| format!("`{name}`")).collect();
    let found = if found.is_empty() { "none has a name".to_owned() } else { found.join(", ") };
    bail!("it holds {} images and not one `{name}`: {found}\nhint: name one of them", all.len())
}

/// How a file is packed, by its first bytes (RFC 1952, section 2.3.1; RFC 8878, section 3.1.1).
fn packing(path: &Path) -> Result<Packing> {
    let mut magic = [0; 4];
    let mut file = fs_err::File::open(path)?;
    let mut have = 0;
    while let n @ 1.. = file.read(&mut magic[have..])? {
        have += n;
    }
    Ok(match magic {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Packing::Zstd,
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
        } else if kind.is_symlink() {
            links.push((
                target,
                entry.link_name().with_context(broken)?.context("a link leads somewhere")?.into_owned(),
            ));
        }
    }
    for (target, to) in links {
        fs_err::create_dir_all(target.parent().context("a link lies in a folder")?)?;
        fs_err::os::unix::fs::symlink(to, &target)?;
    }
    Ok(folder)
}
