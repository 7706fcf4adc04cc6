//! A folder of files that appears whole or not at all, with the list of its checksums.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use agent_api::release::{Blob, Image};
use anyhow::{Context, Result, anyhow, ensure};

use crate::host::cancel;
use crate::host::files::directory_of;
use crate::oci::layout;
use crate::store::{Cache, hash};

/// The list of checksums, as `sha256sum --check` reads it.
pub const SUMS: &str = "SHA256SUMS";

/// A folder that is being written, beside its final place.
#[derive(Debug)]
pub struct Folder {
    to: PathBuf,
    work: tempfile::TempDir,
    files: BTreeMap<String, Blob>,
}

impl Folder {
    /// Begins a folder at `to`, where nothing may exist yet.
    pub fn new(to: &Path) -> Result<Self> {
        ensure!(
            to.symlink_metadata().is_err(),
            "`{}` is there already\nhint: name another folder, or remove that one",
            to.display()
        );
        let beside = directory_of(to);
        fs_err::create_dir_all(beside)?;
        let work = tempfile::Builder::new().prefix(".foothold-").tempdir_in(beside);
        let work = work.with_context(|| format!("making a folder in `{}`", beside.display()))?;
        Ok(Self { to: to.to_owned(), work, files: BTreeMap::new() })
    }

    /// What was written: path, digest and bytes.
    pub const fn files(&self) -> &BTreeMap<String, Blob> {
        &self.files
    }

    /// Where a file is while the folder is written.
    pub fn at(&self, path: &str) -> PathBuf {
        self.work.path().join(path)
    }

    /// A text or other bytes.
    pub fn write(&mut self, path: &str, bytes: &[u8]) -> Result<Blob> {
        self.make(path, 0o644, |file| Ok(fs_err::write(file, bytes)?))
    }

    /// A blob of the cache as a program.
    pub fn program(&mut self, path: &str, cache: &Cache, blob: &Blob) -> Result<Blob> {
        self.copy(path, 0o755, cache, blob)
    }

    /// A blob of the cache.
    pub fn blob(&mut self, path: &str, cache: &Cache, blob: &Blob) -> Result<Blob> {
        self.copy(path, 0o644, cache, blob)
    }

    /// Copies it. The copy is hashed for the list of checksums, and this also shows whether the cached file was damaged.
    fn copy(&mut self, path: &str, mode: u32, cache: &Cache, blob: &Blob) -> Result<Blob> {
        let damaged = || anyhow!("the cached file {} was damaged\nhint: run it again: it is made anew", blob.digest);
        ensure!(cache.holds(blob)?, damaged());
        let copy = self.make(path, mode, |file| Ok(fs_err::copy(cache.blob_path(&blob.digest), file).map(drop)?))?;
        if copy != *blob {
            // The look at it removes it.
            cache.is_whole(blob)?;
            return Err(damaged());
        }
        Ok(copy)
    }

    /// An image as an archive of an OCI layout, below `folder`. Returns the path.
    pub fn image(&mut self, folder: &str, cache: &Cache, image: &Image, time: u64) -> Result<String> {
        let path = format!("{folder}/{}", layout::file_name(&image.reference));
        self.make(&path, 0o644, |file| layout::write_file(cache, image, time, file))?;
        Ok(path)
    }

    /// A packed tar archive of programs: path in it, blob of the cache. The same programs give the same bytes.
    pub fn archive(&mut self, path: &str, cache: &Cache, members: &[(String, &Blob)]) -> Result<Blob> {
        self.make(path, 0o644, |file| {
            let packed =
                flate2::GzBuilder::new().mtime(0).write(fs_err::File::create(file)?, flate2::Compression::new(6));
            let mut tar = tar::Builder::new(packed);
            for (name, blob) in members {
                let mut header = tar::Header::new_gnu();
                header.set_mode(0o755);
                header.set_size(blob.size);
                header.set_mtime(0);
                let source = fs_err::File::open(cache.blob_path(&blob.digest))?;
                tar.append_data(&mut header, name, source)?;
            }
            tar.into_inner()?.finish()?.flush()?;
            Ok(())
        })
    }

    fn make(&mut self, path: &str, mode: u32, make: impl FnOnce(&Path) -> Result<()>) -> Result<Blob> {
        cancel::check()?;
        let file = self.at(path);
        fs_err::create_dir_all(directory_of(&file))?;
        ensure!(!self.files.contains_key(path), "two files want the path `{path}`");
        make(&file)?;
        // Blobs of the cache can only be read, and copies keep that.
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
        let blob = hash::file(&file)?;
        self.files.insert(path.to_owned(), blob.clone());
        Ok(blob)
    }

    /// Writes the list of checksums and puts the folder into its place. Returns bytes of all files.
    pub fn finish(mut self) -> Result<u64> {
        let lines = self.files.iter().map(|(path, blob)| format!("{}  {path}\n", blob.digest.hex()));
        let sums: String = lines.collect();
        self.write(SUMS, sums.as_bytes())?;
        fs_err::set_permissions(self.work.path(), std::fs::Permissions::from_mode(0o755))?;
        let bytes = self.files.values().map(|blob| blob.size).sum();
        let work = self.work.keep();
        if let Err(error) = fs_err::rename(&work, &self.to) {
            let _ = fs_err::remove_dir_all(&work);
            return Err(error.into());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Folder, SUMS};
    use crate::store::Cache;

    #[test]
    fn a_folder_appears_whole_with_its_checksums_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let program = cache.adopt_bytes(b"program").expect("a blob");
        let to = dir.path().join("out/there");
        let entries = || fs_err::read_dir(dir.path().join("out")).expect("read").count();
        let mut folder = Folder::new(&to).expect("begun");
        folder.write("a/list", b"x\n").expect("written");
        folder.write("a/list", b"y\n").expect_err("a second one of that path");
        assert!(!to.exists());
        drop(folder);
        assert_eq!(entries(), 0, "nothing lies beside it");
        let mut folder = Folder::new(&to).expect("begun");
        folder.write("a/list", b"x\n").expect("written");
        folder.program("run", &cache, &program).expect("written");
        folder.finish().expect("finished");
        assert_eq!(entries(), 1);
        assert_eq!(fs_err::metadata(to.join("run")).expect("a file").permissions().mode() & 0o777, 0o755);
        let sums = fs_err::read_to_string(to.join(SUMS)).expect("sums");
        assert_eq!(sums.lines().count(), 2);
        assert!(sums.ends_with(&format!("{}  run\n", program.digest.hex())), "{sums}");
        let error = Folder::new(&to).expect_err("it is there").to_string();
        assert!(error.contains("is there already"), "{error}");
    }

    #[test]
    fn a_damaged_file_of_the_cache_is_refused_and_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let program = cache.adopt_bytes(b"program").expect("a blob");
        let cached = cache.blob_path(&program.digest);
        fs_err::set_permissions(&cached, std::fs::Permissions::from_mode(0o644)).expect("set");
        fs_err::write(&cached, b"Program").expect("damaged");
        let mut folder = Folder::new(&dir.path().join("there")).expect("begun");
        let error = folder.program("run", &cache, &program).expect_err("damaged").to_string();
        assert!(error.contains("was damaged") && !cached.exists(), "{error}");
    }

    #[test]
    fn an_archive_is_the_same_bytes_each_time() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let program = cache.adopt_bytes(b"program").expect("a blob");
        let mut folder = Folder::new(&dir.path().join("out")).expect("begun");
        let mut write =
            |path: &str| folder.archive(path, &cache, &[("bin/run".to_owned(), &program)]).expect("written");
        assert_eq!(write("one.tar.gz"), write("two.tar.gz"));
        let file = fs_err::File::open(folder.at("one.tar.gz")).expect("opened");
        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(file));
        let members: Vec<_> = read
            .entries()
            .expect("a tar")
            .map(|member| {
                let member = member.expect("a member");
                (member.path().expect("a path").display().to_string(), member.header().mode().expect("a mode"))
            })
            .collect();
        assert_eq!(members, [("bin/run".to_owned(), 0o755)]);
    }
}
