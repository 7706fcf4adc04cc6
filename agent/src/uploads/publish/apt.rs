//! Packages that were uploaded, as an apt repository for each owner.
//!
//! ```text
//! debian-uploads/<owner>/{InRelease, Release, Release.gpg, key.asc, Packages, Packages.gz}
//! debian-uploads/<owner>/by-hash/SHA256/<hex>      also of the index before, for who is just reading it
//! debian-uploads/<owner>/pool/<cluster>/<name>     the blobs
//! ```
//! `deb [signed-by=/etc/apt/keyrings/uploads.asc] http://BOX:6180/debian-uploads/<owner> ./`. The key is made on the
//! box and stays there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::SystemTime;

use agent_api::bpa::Published;
use agent_api::openpgp::Key;
use agent_api::release::{ContentKind, Digest};
use md5::{Digest as _, Md5};

use super::attempt;
use super::reader::{Reader, Unread};
use crate::content::Held;
use crate::host::files;
use crate::uploads::writer::is_package;
use crate::uploads::{Record, Uploads, secs};

/// Folder of the content server.
pub(super) const FOLDER: &str = "debian-uploads";
const KEY_USER: &str = "Foothold uploads";

/// A file that is made here.
type Made = (String, ContentKind, Vec<u8>);

/// What is kept between two looks.
#[derive(Default)]
pub(super) struct Apt {
    /// Stanzas of each owner at the last look.
    last: BTreeMap<String, String>,
    made: BTreeMap<String, Vec<Made>>,
    /// Indexes of before, by owner.
    before: BTreeMap<String, Vec<Made>>,
}

impl Apt {
    /// Brings the repositories up to date, and says so in the packages' records. Tells whether one could not be read and
    /// may be later.
    pub(super) fn refresh(&mut self, uploads: &Uploads, reader: &Reader, now: SystemTime) -> anyhow::Result<bool> {
        let packages: Vec<Record> =
            uploads.all().into_iter().filter(|record| is_package(record) && record.digest.is_some()).collect();
        let mut stanzas: BTreeMap<String, String> = BTreeMap::new();
        let (mut blobs, mut outcomes, mut later) = (Vec::new(), Vec::new(), false);
        for record in packages {
            match control(uploads, reader, &record) {
                Ok(control) => {
                    let pool = format!("pool/{}/{}", record.key.cluster, record.key.name);
                    let stanza = stanza(&control, &record, &pool);
                    stanzas.entry(record.key.owner.clone()).or_default().push_str(&stanza);
                    let path = format!("{FOLDER}/{}/{pool}", record.key.owner);
                    blobs.extend(held(uploads, &record, path.clone()));
                    outcomes.push((record, Published::Published, vec![path], None));
                }
                Err(Unread::Never(why)) => outcomes.push((record, Published::Failed, Vec::new(), Some(why))),
                Err(Unread::Later(why)) => {
                    later = true;
                    outcomes.push((record, Published::Pending, Vec::new(), Some(why)));
                }
            }
        }
        if stanzas != self.last {
            self.make(uploads, &stanzas, now)?;
        }
        let all: Vec<Made> = self.made.values().chain(self.before.values()).flatten().cloned().collect();
        uploads.set_made(&all, blobs)?;
        for (record, published, references, problem) in outcomes {
            uploads.set_published(&record, published, references, problem)?;
        }
        Ok(later)
    }

    fn make(&mut self, uploads: &Uploads, stanzas: &BTreeMap<String, String>, now: SystemTime) -> anyhow::Result<()> {
        let key = key(uploads, now)?;
        let mut made = BTreeMap::new();
        for (owner, packages) in stanzas {
            if self.last.get(owner) == Some(packages) {
                made.extend(self.made.remove_entry(owner));
                continue;
            }
            let by_hash = |file: &Made| file.0.contains("/by-hash/");
            let old = self.made.remove(owner).unwrap_or_default().into_iter().filter(by_hash).collect();
            self.before.insert(owner.clone(), old);
            made.insert(owner.clone(), repository(owner, packages, &key, now)?);
        }
        self.before.retain(|owner, _| made.contains_key(owner));
        self.made = made;
        self.last.clone_from(stanzas);
        Ok(())
    }
}

/// The control file of a package. It is read once, whatever came of it.
fn control(uploads: &Uploads, reader: &Reader, record: &Record) -> Result<String, Unread> {
    if let Some(known) = &record.control {
        return Ok(known.clone());
    }
    if record.published == Published::Failed {
        return Err(Unread::Never(record.problem.clone().unwrap_or_default()));
    }
    let control = attempt(uploads, record, |path| reader.control(path))?.text;
    uploads.set_control(record, &control).map_err(|error| Unread::Later(error.to_string()))?;
    Ok(control)
}

fn held(uploads: &Uploads, record: &Record, path: String) -> Option<Held> {
    let file = uploads.blob(record)?;
    Some(Held { path, kind: ContentKind::Package, file, digest: record.digest.clone()?, size: record.length })
}

fn stanza(text: &str, record: &Record, pool: &str) -> String {
    let sha256 = record.digest.as_ref().map(Digest::hex).unwrap_or_default();
    let md5 = record.md5.as_deref().unwrap_or_default();
    format!("{text}\nFilename: ./{pool}\nSize: {}\nMD5sum: {md5}\nSHA256: {sha256}\n\n", record.length)
}

/// All files of one owner's repository but the packages.
fn repository(owner: &str, packages: &str, key: &Key, now: SystemTime) -> anyhow::Result<Vec<Made>> {
    let mut gz = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
    gz.write_all(packages.as_bytes())?;
    let indexes = [("Packages", packages.as_bytes().to_vec()), ("Packages.gz", gz.finish()?)];
    let release = release(owner, packages, &indexes, now)?;
    let time = u32::try_from(secs(now)).unwrap_or(u32::MAX);
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("InRelease".to_owned(), key.cleartext(&release, time)?.into_bytes()),
        ("Release.gpg".to_owned(), key.detached(release.as_bytes(), time).into_bytes()),
        ("Release".to_owned(), release.into_bytes()),
        ("key.asc".to_owned(), key.certificate().into_bytes()),
    ];
    for (name, bytes) in indexes {
        files.push((format!("by-hash/SHA256/{}", Digest::of(&bytes).hex()), bytes.clone()));
        files.push((name.to_owned(), bytes));
    }
    let made = files.into_iter().map(|(name, bytes)| (format!("{FOLDER}/{owner}/{name}"), ContentKind::Package, bytes));
    Ok(made.collect())
}

/// The `Release` file of a flat repository (Debian wiki, "`DebianRepository/Format`").
fn release(owner: &str, packages: &str, indexes: &[(&str, Vec<u8>)], now: SystemTime) -> anyhow::Result<String> {
    let date = jiff::Timestamp::try_from(now)?.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    let of = packages.lines().filter_map(|line| line.strip_prefix("Architecture: "));
    let architectures: BTreeSet<&str> = of.filter(|name| *name != "all").chain(["amd64"]).collect();
    let architectures: Vec<&str> = architectures.into_iter().collect();
    let mut text = format!(
        "Origin: Foothold\nLabel: Foothold uploads\nSuite: {owner}\nCodename: {owner}\nDate: {date}\n\
         Acquire-By-Hash: yes\nArchitectures: {}\nDescription: Packages that were uploaded to this box\n",
        architectures.join(" ")
    );
    text.push_str("MD5Sum:\n");
    for (name, bytes) in indexes {
        writeln!(text, " {} {} {name}", hex::encode(Md5::digest(bytes)), bytes.len())?;
    }
    text.push_str("SHA256:\n");
    for (name, bytes) in indexes {
        writeln!(text, " {} {} {name}", Digest::of(bytes).hex(), bytes.len())?;
    }
    Ok(text)
}

/// The box's key for uploads: made at the first package.
fn key(uploads: &Uploads, now: SystemTime) -> anyhow::Result<Key> {
    let path = uploads.root().join("apt.key");
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let created = u32::try_from(secs(now)).unwrap_or(u32::MAX);
            let text = format!("{created} {}\n", hex::encode(rand::random::<[u8; 32]>()));
            files::write_durably(&path, text.as_bytes(), files::SECRET)?;
            text
        }
        Err(error) => return Err(error.into()),
    };
    let broken =
        || anyhow::anyhow!("`{}` holds no key; hint: remove it, and tell the site the new key", path.display());
    let (created, seed) = text.trim().split_once(' ').ok_or_else(broken)?;
    let seed: [u8; 32] = hex::decode(seed).ok().and_then(|seed| seed.try_into().ok()).ok_or_else(broken)?;
    Ok(Key::new(&seed, KEY_USER, created.parse().map_err(|_| broken())?)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, SystemTime};

    use agent_api::bpa::{Kind, Published};

    use super::super::deb::tests::package;
    use super::super::reader::tests::reader;
    use super::Apt;
    use crate::content::Source;
    use crate::uploads::{Announced, UploadKey, UploadLimits, Uploads};

    fn store(dir: &Path) -> Uploads {
        let limits =
            UploadLimits { percent: Kind::ALL.map(|kind| (kind, 100)).into(), reserve_percent: 0, images: 100 };
        Uploads::open(dir, limits).expect("a store")
    }

    fn upload(uploads: &Uploads, owner: &str, name: &str, bytes: &[u8]) -> UploadKey {
        let key = UploadKey::new(Kind::BinaryImages, owner, "edge", name).expect("a name");
        let announced = Announced { length: bytes.len() as u64, ..Announced::default() };
        uploads.create(key.clone(), announced).expect("created");
        let mut writer = uploads.begin(&key, 0, Some(bytes.len() as u64)).expect("a writer");
        writer.write(bytes).expect("written");
        assert_eq!(writer.end().expect("whole").published, Published::Pending);
        key
    }

    fn control(name: &str, version: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: a test\n"
        )
    }

    /// Lays out what the content server would serve.
    fn lay_out(uploads: &Uploads, dir: &Path) {
        for held in uploads.list() {
            let path = dir.join(&held.path);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::copy(&held.file, &path).expect("copied");
        }
    }

    fn text(uploads: &Uploads, path: &str) -> String {
        fs_err::read_to_string(uploads.find(path).unwrap_or_else(|| panic!("{path}")).file).expect("text")
    }

    #[test]
    fn a_package_is_in_its_owners_repository_until_it_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (uploads, mut apt) = (store(dir.path()), Apt::default());
        let key = upload(&uploads, "alpha", "tool_1_all.deb", &package(&control("tool", "1"), ".xz"));
        upload(&uploads, "gamma", "tool_1_all.deb", &package(&control("tool", "1"), ".zst"));
        let broken = upload(&uploads, "alpha", "broken.deb", b"no package");
        let now = SystemTime::now();
        apt.refresh(&uploads, &reader(), now).expect("made");
        let record = uploads.get(&key).expect("the package");
        assert_eq!(record.published, Published::Published);
        assert_eq!(record.references, ["debian-uploads/alpha/pool/edge/tool_1_all.deb"]);
        let problem = uploads.get(&broken).expect("the file").problem.expect("a problem");
        assert!(problem.contains("no Debian package"), "{problem}");
        assert!(uploads.find("files/broken.deb").is_some(), "it is a file all the same");
        let packages = text(&uploads, "debian-uploads/alpha/Packages");
        assert!(
            packages.starts_with("Package: tool\n") && packages.contains("\nFilename: ./pool/edge/tool_1_all.deb\n")
        );
        let by_hash: Vec<String> =
            uploads.list().into_iter().map(|held| held.path).filter(|path| path.contains("alpha/by-hash")).collect();
        let second = upload(&uploads, "alpha", "tool_2_all.deb", &package(&control("tool", "2"), ".gz"));
        apt.refresh(&uploads, &reader(), now + Duration::from_secs(1)).expect("made");
        assert!(by_hash.iter().all(|path| uploads.find(path).is_some()), "the index of before is still there");
        assert_eq!(text(&uploads, "debian-uploads/alpha/Packages").matches("Package: tool\n").count(), 2);
        for key in [key, second, broken] {
            uploads.remove(&key).expect("removed");
        }
        apt.refresh(&uploads, &reader(), now).expect("made");
        assert!(uploads.find("debian-uploads/alpha/InRelease").is_none());
        assert!(uploads.find("debian-uploads/gamma/InRelease").is_some());
    }

    #[test]
    fn the_key_stays_the_same_and_secret() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let uploads = store(dir.path());
        upload(&uploads, "alpha", "a.deb", &package(&control("a", "1"), ""));
        Apt::default().refresh(&uploads, &reader(), SystemTime::now()).expect("made");
        let first = text(&uploads, "debian-uploads/alpha/key.asc");
        let again = store(dir.path());
        Apt::default().refresh(&again, &reader(), SystemTime::now()).expect("made");
        assert_eq!(text(&again, "debian-uploads/alpha/key.asc"), first);
        let mode = fs_err::metadata(dir.path().join("apt.key")).expect("the key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// The real apt of this machine, without touching what is its own.
    #[test]
    fn an_unmodified_apt_takes_the_package_from_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let (uploads, served) = (store(&dir.path().join("store")), dir.path().join("served"));
        upload(&uploads, "alpha", "tool_1.2-3_all.deb", &package(&control("tool", "1.2-3"), ".xz"));
        Apt::default().refresh(&uploads, &reader(), SystemTime::now()).expect("made");
        lay_out(&uploads, &served);
        let root = dir.path().join("apt");
        for folder in [
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg",
        ] {
            fs_err::create_dir_all(root.join(folder)).expect("made");
        }
        fs_err::write(root.join("var/lib/dpkg/status"), "").expect("written");
        let key = served.join("debian-uploads/alpha/key.asc");
        let line = format!("deb [signed-by={}] copy:{}/debian-uploads/alpha ./\n", key.display(), served.display());
        fs_err::write(root.join("etc/apt/sources.list"), line).expect("written");
        fs_err::write(
            dir.path().join("apt.conf"),
            format!(
                "Dir \"{}\";\nDir::State::status \"{0}/var/lib/dpkg/status\";\nAPT::Sandbox::User \"root\";\n",
                root.display()
            ),
        )
        .expect("written");
        let run = |arguments: &[&str]| {
            #[expect(clippy::disallowed_methods, reason = "a test may ask a foreign program whether it agrees")]
            let mut command = Command::new(arguments[0]);
            command.args(&arguments[1..]).env("APT_CONFIG", dir.path().join("apt.conf")).current_dir(dir.path());
            let output = command.output().expect("apt is on every machine that builds Foothold");
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(output.status.success(), "{arguments:?}: {told}");
            told
        };
        let updated = run(&["apt-get", "update", "--error-on=any"]);
        assert!(!updated.contains("\nW:") && !updated.contains("\nErr"), "{updated}");
        assert!(run(&["apt-cache", "show", "tool"]).contains("Version: 1.2-3"));
        run(&["apt-get", "download", "tool"]);
        assert!(dir.path().join("tool_1.2-3_all.deb").exists());
    }
}
