//! `content.packages.debian`: a signed apt repository below `debian/`, which an unmodified apt on a server accepts.
//!
//! ```text
//! names ─apt─► lock's set `repository` ─► pool/NAME/*.deb ─► Packages{,.gz,.xz} ─► Release ─key─► InRelease, Release.gpg
//! release key ─HKDF─► repository key ─► foothold.asc
//! ```
//! It holds what the packages need beyond Debian's required ones, and those too where an older point release's would not
//! do: a minimal trixie installs from it alone. The dates in it are the lock's and it never expires: a site is offline
//! for years.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use agent_api::release::{Blob, ContentFile, ContentKind};
use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::config::Appliance;
use crate::lock::apt::{Apt, SUITE};
use crate::lock::{Deb, Lock, index};
use crate::release::openpgp::Key;
use crate::release::sign::Signer;
use crate::store::{Cache, Made, StageKey, hash};

/// The package set in the lock.
pub const SET: &str = "repository";
/// Folder of the index files of the only component and architecture.
const BINARY: &str = "main/binary-amd64";
/// What the repository's key is derived for; another text would be another key.
const KEY_PURPOSE: &str = "debian repository";
/// Whose key it is.
const KEY_USER: &str = "Foothold package repository";
/// When the key was made, for a key that is derived anew each time: a part of its identity.
const KEY_MADE: u32 = 1_735_689_600;

/// Resolves the packages into the lock.
pub fn resolve(appliance: &Appliance, apt: &Apt, lock: &mut Lock) -> Result<()> {
    let names = &appliance.content.debian_packages;
    if names.is_empty() {
        return Ok(());
    }
    let debs = apt.resolve_beyond_base(names).context("resolving `content.packages.debian`")?;
    lock.debian.insert(SET.to_owned(), debs);
    lock.asked.insert(SET.to_owned(), names.clone());
    Ok(())
}

/// An error when the lock's packages are not those that the definition asks for.
pub fn check(appliance: &Appliance, lock: &Lock) -> Result<()> {
    match appliance.content.debian_packages.as_slice() {
        [] => Ok(()),
        names => lock.packages_for(SET, names).map(drop),
    }
}

/// What the stage made, as it is served.
pub fn files(made: &Made) -> Result<Vec<ContentFile>> {
    let file =
        |(path, blob): (&String, &Blob)| ContentFile::stored(format!("debian/{path}"), ContentKind::Package, blob);
    Ok(made.files.iter().map(file).collect())
}

/// The key that signs the repository: the same for the same release key.
pub fn repository_key(signer: &Signer) -> Result<Key> {
    Ok(Key::new(&signer.derived_seed(KEY_PURPOSE)?, KEY_USER, KEY_MADE)?)
}

/// What a repository is made of.
pub struct Repository<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// Its packages.
    pub debs: &'a [Deb],
    /// Its date.
    pub made: u64,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

impl Repository<'_> {
    fn key(&self, key: &Key) -> Result<StageKey> {
        Ok(StageKey::new("debian-repository", 1)
            .with("packages", hash::bytes(&serde_json::to_vec(self.debs)?))
            .with("key", key.fingerprint_hex())
            .with("made", self.made))
    }

    /// Makes it or takes it from the cache; files by their path below `debian/`. `fetch` brings packages.
    pub fn make(&self, key: &Key, fetch: &dyn Fn(&[Deb]) -> Result<()>) -> Result<(Made, bool)> {
        self.cache.stage(&self.key(key)?, &mut || (self.waiting)("another build is making the same"), |_| {
            fetch(self.debs)?;
            let mut made = Made::default();
            for deb in self.debs {
                made.files.insert(pool_path(deb), Blob { digest: deb.sha256.clone(), size: deb.size });
            }
            let indexes = indexes(&self.packages()?)?;
            for (name, bytes) in &indexes {
                let blob = self.cache.adopt_bytes(bytes)?;
                let by_hash = format!("{BINARY}/by-hash/SHA256/{}", blob.digest.hex());
                made.files.insert(format!("dists/{SUITE}/{by_hash}"), blob.clone());
                made.files.insert(format!("dists/{SUITE}/{name}"), blob);
            }
            let release = release(self.made, &indexes)?;
            let time = u32::try_from(self.made).context("a build time before 2106")?;
            for (name, text) in [
                (format!("dists/{SUITE}/InRelease"), key.cleartext(&release, time)?),
                (format!("dists/{SUITE}/Release.gpg"), key.detached(release.as_bytes(), time)),
                ("foothold.asc".to_owned(), key.certificate()),
                (format!("dists/{SUITE}/Release"), release),
            ] {
                made.files.insert(name, self.cache.adopt_bytes(text.as_bytes())?);
            }
            Ok(made)
        })
    }

    /// The index: the control file of each package, where it lies and what it hashes to.
    fn packages(&self) -> Result<String> {
        let stanza = |deb: &Deb| {
            let control = index::control(self.cache, deb)?;
            let md5 = hash::md5_of_file(&self.cache.blob_path(&deb.sha256))?;
            let (path, size, sha256) = (pool_path(deb), deb.size, deb.sha256.hex());
            Ok(format!("{control}\nFilename: {path}\nSize: {size}\nMD5sum: {md5}\nSHA256: {sha256}\n\n"))
        };
        Ok(self.debs.par_iter().map(stanza).collect::<Result<Vec<_>>>()?.concat())
    }
}

/// Where a package lies. As in Debian's own pool the file name has no epoch: a `%3a` in it would have to survive clients.
fn pool_path(deb: &Deb) -> String {
    let version = deb.version.split_once(':').map_or(deb.version.as_str(), |(_, version)| version);
    format!("pool/{name}/{name}_{version}_{}.deb", deb.architecture, name = deb.name)
}

/// The index, plain and compressed, by path below the suite.
fn indexes(packages: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut gz = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::best());
    gz.write_all(packages.as_bytes())?;
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(packages.as_bytes())?;
    let path = |ending: &str| format!("{BINARY}/Packages{ending}");
    Ok([(path(""), packages.as_bytes().to_vec()), (path(".gz"), gz.finish()?), (path(".xz"), xz.finish()?)].into())
}

/// The `Release` file (Debian wiki, "`DebianRepository/Format`").
fn release(made: u64, indexes: &BTreeMap<String, Vec<u8>>) -> Result<String> {
    let date = jiff::Timestamp::from_second(made.cast_signed())?.strftime("%a, %d %b %Y %H:%M:%S UTC");
    let mut text = format!(
        "Origin: Foothold\nLabel: Foothold\nSuite: {SUITE}\nCodename: {SUITE}\nDate: {date}\nAcquire-By-Hash: yes\n\
         Architectures: amd64\nComponents: main\nDescription: Packages that this box carries for its site\n"
    );
    for field in ["MD5Sum", "SHA256"] {
        writeln!(text, "{field}:")?;
        for (name, bytes) in indexes {
            let sum = if field == "MD5Sum" { hash::md5(bytes) } else { hash::bytes(bytes).hex().to_owned() };
            writeln!(text, " {sum} {} {name}", bytes.len())?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{indexes, pool_path, release};
    use crate::lock::Deb;
    use crate::store::hash;

    #[test]
    fn a_package_lies_where_debian_would_put_it() {
        let deb = Deb {
            name: "lldpd".into(),
            version: "1:2.0~rc1+b1-3".into(),
            architecture: "amd64".into(),
            sha256: hash::bytes(b""),
            size: 0,
        };
        assert_eq!(pool_path(&deb), "pool/lldpd/lldpd_2.0~rc1+b1-3_amd64.deb");
    }

    #[test]
    fn the_release_file_has_the_date_of_the_lock_and_the_sums_of_all_indexes() {
        let text = release(1_700_000_000, &indexes("").expect("indexes")).expect("a text");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"Date: Tue, 14 Nov 2023 22:13:20 UTC"), "{text}");
        assert!(lines.contains(&" d41d8cd98f00b204e9800998ecf8427e 0 main/binary-amd64/Packages"), "{text}");
        assert_eq!(text.matches("main/binary-amd64/Packages").count(), 6);
        assert!(!text.contains("Valid-Until"), "{text}");
    }
}
