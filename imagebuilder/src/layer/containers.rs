//! The `containers` layer: the images the box itself runs, unpacked, and containerd's databases that say so.
//!
//! ```text
//! metadata/        containerd's databases
//! snapshots/N/fs   what it unpacked; containerd reads it here
//! host/            programs of the box itself that are one with a program of an image: part of the root
//! blobs.json       the images' blobs, which lie in the medium's store
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::boot::{CONTAINERS, HOST};
use agent_api::release::{Blob, Image};
use anyhow::{Context, Result};

use super::kubernetes::programs_that_are;
use super::seal;
use super::squashfs::Packing;
use crate::lock::Deb;
use crate::oci::import::{Import, METADATA, SNAPSHOTS};
use crate::oci::recipe::{Kitchen, Packed, Recipe};
use crate::rootfs::programs::place;
use crate::store::{Cache, Made, StageKey, WorkDir, hash};
use crate::toolbox::Toolbox;

/// Where an image says in which order its program reads its files: absolute paths, one a line.
const READ_ORDER: &str = "usr/share/foothold/read-order";

/// What the layer is made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox.
    pub toolbox_key: &'a str,
    /// Programs of all module sets, and `pause`.
    pub programs: &'a Made,
    /// Debian packages that recipes may unpack: the set `os`.
    pub debs: &'a [Deb],
    /// The recipes.
    pub recipes: &'a [Recipe],
    /// Images of services, made already.
    pub services: &'a [Packed],
    /// Version of the cluster.
    pub version: &'a str,
    /// Build time.
    pub built: u64,
    /// Brings packages into the cache that are not there.
    pub fetch: &'a dyn Fn(&[Deb]) -> Result<()>,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// Makes the layer or takes it from the cache. Facts: `layer`, `images`; the images' blobs are files of the stage.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let mut key = StageKey::new("containers", 10)
        .with("toolbox", input.toolbox_key)
        .with("version", input.version)
        .with("built", input.built)
        .with("recipes", hash::bytes(&serde_json::to_vec(input.recipes)?));
    for (name, blob) in &input.programs.files {
        key = key.with(name, &blob.digest);
    }
    let unpacked = unpacked(input.debs, input.recipes)?;
    for deb in &unpacked {
        key = key.with(&deb.name, &deb.sha256);
    }
    for service in input.services {
        key = key.with(&service.image.reference, &service.manifest.digest);
    }
    input.cache.stage(&key, &mut || (input.waiting)("another build is making the same"), |work| {
        // The `os` layer may be cached while the packages it was made of are not.
        (input.fetch)(&unpacked)?;
        input.build(work)
    })
}

/// The packages that a recipe unpacks, of the set `os`.
pub fn packages_of<'a>(os: &'a [Deb], recipe: &Recipe) -> Result<Vec<&'a Deb>> {
    let find = |name: &String| {
        os.iter().find(|deb| deb.name == *name).with_context(|| {
            format!("a recipe unpacks the Debian package `{name}`, which the set `os` does not hold\nhint: add it to packages/os/packages.txt")
        })
    };
    recipe.debian.iter().map(find).collect()
}

/// The packages that recipes unpack, each once, by name.
pub fn unpacked<'r>(os: &[Deb], recipes: impl IntoIterator<Item = &'r Recipe>) -> Result<Vec<Deb>> {
    let mut all = BTreeMap::new();
    for recipe in recipes {
        all.extend(packages_of(os, recipe)?.into_iter().map(|deb| (&deb.name, deb)));
    }
    Ok(all.into_values().cloned().collect())
}

impl Input<'_> {
    fn build(&self, work: &WorkDir) -> Result<Made> {
        let mut packed = Vec::new();
        let (cache, programs, built, version) = (self.cache, self.programs, self.built, self.version);
        let kitchen = Kitchen { cache, programs, built, version };
        for recipe in self.recipes {
            packed.push(kitchen.make(work, recipe, None, &packages_of(self.debs, recipe)?)?);
        }
        packed.extend(self.services.iter().cloned());
        let programs = work.path().join("programs");
        for name in ["containerd", "ctr"] {
            place(self.cache, self.programs, name, &programs.join(name))?;
        }
        let (cache, toolbox, built) = (self.cache, self.toolbox, self.built);
        Import { cache, toolbox, work, programs: &programs, built }.import(&packed)?;
        self.collect(work, &packed)
    }

    /// The layer's tree out of containerd's root.
    fn collect(&self, work: &WorkDir, packed: &[Packed]) -> Result<Made> {
        let (root, tree) = (work.path().join("containerd"), work.path().join("tree"));
        for database in [METADATA, SNAPSHOTS] {
            let target = tree.join("metadata").join(database);
            fs_err::create_dir_all(target.parent().context("a folder")?)?;
            fs_err::copy(root.join(database), target)?;
        }
        let snapshots = root.join("io.containerd.snapshotter.v1.overlayfs/snapshots");
        for entry in fs_err::read_dir(&snapshots)? {
            let entry = entry?;
            let target = tree.join("snapshots").join(entry.file_name());
            fs_err::create_dir_all(&target)?;
            fs_err::rename(entry.path().join("fs"), target.join("fs"))?;
        }
        self.link_host(&tree)?;
        let images: Vec<&Image> = packed.iter().map(|packed| &packed.image).collect();
        let mut made = Made::default();
        let digests: Vec<_> = images.iter().flat_map(|image| &image.blobs).collect();
        fs_err::write(tree.join("blobs.json"), serde_json::to_vec(&digests)?)?;
        for blob in digests {
            made.files.insert(format!("blob {}", blob.digest.hex()), blob.clone());
        }
        made.set_fact("images", &images)?;
        let packing = Packing { level: 15, all_root: true, time: self.built, order: read_order(&tree)? };
        seal::seal(self.cache, self.toolbox, work, "tree", CONTAINERS, &packing, &mut made)?;
        Ok(made)
    }
}

impl Input<'_> {
    /// Gives the box itself those of its programs that images have.
    fn link_host(&self, tree: &Path) -> Result<()> {
        for (name, path) in programs_that_are(true, self.programs)? {
            let blob = self.programs.file(name)?;
            let in_image = find(&tree.join("snapshots"), name, blob)?;
            let target = tree.join(HOST).join(path);
            fs_err::create_dir_all(target.parent().context("a folder")?)?;
            match in_image {
                Some(file) => fs_err::hard_link(file, target)?,
                None => place(self.cache, self.programs, name, &target)?,
            }
        }
        Ok(())
    }
}

/// The first file of that name and content below a folder.
fn find(folder: &Path, name: &str, blob: &Blob) -> Result<Option<PathBuf>> {
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() && entry.file_name() == name && hash::file(entry.path())? == *blob {
            return Ok(Some(entry.into_path()));
        }
    }
    Ok(None)
}

/// Paths in the layer of the files that programs of the images read when they start, in order, by what the images
/// themselves say.
fn read_order(tree: &Path) -> Result<Vec<String>> {
    let mut order = Vec::new();
    let mut snapshots: Vec<_> = fs_err::read_dir(tree.join("snapshots"))?.collect::<Result<_, _>>()?;
    snapshots.sort_by_key(fs_err::DirEntry::file_name);
    for snapshot in snapshots {
        let files = Path::new("snapshots").join(snapshot.file_name()).join("fs");
        let list = tree.join(&files).join(READ_ORDER);
        if !list.exists() {
            continue;
        }
        order.extend(fs_err::read_to_string(list)?.lines().map(|path| format!("{}{path}", files.display())));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::Path;

    use anyhow::bail;

    use super::{Input, READ_ORDER, Recipe, make, read_order};
    use crate::lock::Deb;
    use crate::store::{Cache, Made, hash};
    use crate::toolbox::Toolbox;

    #[test]
    fn files_are_ordered_as_images_say() {
        let dir = tempfile::tempdir().expect("a folder");
        for (snapshot, list) in [("2", Some("/usr/b.pyc\n/usr/a.pyc\n")), ("1", None), ("3", Some("/usr/c\n"))] {
            let files = dir.path().join("snapshots").join(snapshot).join("fs");
            fs_err::create_dir_all(files.join("usr/share/foothold")).expect("a folder");
            if let Some(list) = list {
                fs_err::write(files.join(READ_ORDER), list).expect("written");
            }
        }
        let order = read_order(dir.path()).expect("read");
        assert_eq!(order, ["snapshots/2/fs/usr/b.pyc", "snapshots/2/fs/usr/a.pyc", "snapshots/3/fs/usr/c"]);
    }

    #[test]
    fn packages_that_recipes_unpack_are_fetched_first_and_no_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let debs = ["libc6", "nftables", "systemd"].map(|name| Deb {
            name: name.to_owned(),
            version: "1".into(),
            architecture: "amd64".into(),
            sha256: hash::bytes(name.as_bytes()),
            size: 1,
        });
        let recipe = |debian: &[&str]| Recipe {
            reference: "a.example/b:1".into(),
            debian: debian.iter().map(|name| (*name).to_owned()).collect(),
            ..Recipe::default()
        };
        let fetched = RefCell::new(Vec::new());
        let error = make(&Input {
            cache: &cache,
            toolbox: &Toolbox::at(Path::new(""), Path::new("")),
            toolbox_key: "",
            programs: &Made::default(),
            debs: &debs,
            services: &[],
            recipes: &[recipe(&["nftables", "libc6"]), recipe(&["libc6"])],
            version: "v1.36.4",
            built: 1,
            fetch: &|debs| {
                fetched.borrow_mut().extend(debs.iter().map(|deb| deb.name.clone()));
                bail!("the mirror is away")
            },
            waiting: &|_| (),
        });
        assert_eq!(error.expect_err("nothing was fetched").to_string(), "the mirror is away");
        assert_eq!(*fetched.borrow(), ["libc6", "nftables"]);
    }
}
