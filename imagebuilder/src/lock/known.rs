//! The newest version of each Debian package that this user's builds have seen: a lock that is older can be told.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::Result;

use super::{Deb, Lock};
use crate::host::files::write_whole;
use crate::store::Cache;

/// Its file in the cache.
const FILE: &str = "known-packages.json";
/// How many packages a message names.
const NAMED: usize = 8;

/// Versions by package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(BTreeMap<String, String>);

impl Known {
    /// What is known; nothing, where nobody has looked yet, or where a power cut has left half of it.
    pub fn read(cache: &Cache) -> Result<Self> {
        let path = cache.path(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs_err::read(&path)?;
        Ok(Self(serde_json::from_slice(&text).unwrap_or_else(|error| {
            log::warn!("`{}` is passed over, and written anew: {error}", path.display());
            BTreeMap::new()
        })))
    }

    /// Takes in what a lock names.
    pub fn learn(&mut self, lock: &Lock) {
        for Deb { name, version, .. } in lock.debian.values().flatten() {
            let known = self.0.entry(name.clone()).or_insert_with(|| version.clone());
            if compare(version, known) == Ordering::Greater {
                known.clone_from(version);
            }
        }
    }

    /// Keeps it for the builds to come.
    pub fn write(&self, cache: &Cache) -> Result<()> {
        Ok(write_whole(&cache.path(FILE), &serde_json::to_vec_pretty(&self.0)?)?)
    }

    /// The packages of a lock that are older than what is known: name, version, newest known.
    pub fn older(&self, lock: &Lock) -> Vec<(String, String, String)> {
        let mut older: Vec<(String, String, String)> = Vec::new();
        for Deb { name, version, .. } in lock.debian.values().flatten() {
            let known = self.0.get(name).filter(|known| compare(version, known) == Ordering::Less);
            if let Some(known) = known {
                older.push((name.clone(), version.clone(), known.clone()));
            }
        }
        older.sort();
        older.dedup();
        older
    }

    /// What to say of a lock: without the security archive, or older than what is known.
    pub fn warnings(&self, lock: &Lock) -> Vec<String> {
        let mut warnings = Vec::new();
        if lock.without_security {
            warnings.push(
                "warning: the lock was made without Debian's security archive: packages may lack fixes that it has\n\
                 hint: `foothold lock --update` with a mirror that has `debian-security` beside `debian`, or with the \
                 archive in this host's apt sources"
                    .to_owned(),
            );
        }
        let older = self.older(lock);
        if !older.is_empty() {
            let named =
                older.iter().take(NAMED).map(|(name, version, known)| format!("{name} {version} ({known} is known)"));
            let more = if older.len() > NAMED { format!(", and {} more", older.len() - NAMED) } else { String::new() };
            warnings.push(format!(
                "warning: older than what builds here have seen: {}{more}",
                named.collect::<Vec<_>>().join(", ")
            ));
        }
        warnings
    }
}

/// Which of two versions is newer (Debian Policy, 5.6.12).
fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (Version::of(a), Version::of(b));
    a.epoch.cmp(&b.epoch).then_with(|| parts(a.upstream, b.upstream)).then_with(|| parts(a.revision, b.revision))
}

struct Version<'a> {
    epoch: u64,
    upstream: &'a str,
    revision: &'a str,
}

impl<'a> Version<'a> {
    fn of(text: &'a str) -> Self {
        let (epoch, rest) = text.split_once(':').unwrap_or(("0", text));
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
        Self { epoch: epoch.parse().unwrap_or(0), upstream, revision }
    }
}

/// Compares by turns what is no digit and what is.
fn parts(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (words_a, words_b) = (take(&mut a, false), take(&mut b, false));
        // The end of a part sorts before everything but `~`.
        let weights = |text: &str| text.bytes().map(weight).chain([0]).collect::<Vec<_>>();
        let words = weights(words_a).cmp(&weights(words_b));
        let (digits_a, digits_b) = (take(&mut a, true), take(&mut b, true));
        let (digits_a, digits_b) = (digits_a.trim_start_matches('0'), digits_b.trim_start_matches('0'));
        let numbers = digits_a.len().cmp(&digits_b.len()).then_with(|| digits_a.cmp(digits_b));
        if words.then(numbers) != Ordering::Equal {
            return words.then(numbers);
        }
    }
    Ordering::Equal
}

/// `~` sorts before the end, letters before other characters.
fn weight(byte: u8) -> i16 {
    match byte {
        b'~' => -1,
        letter if letter.is_ascii_alphabetic() => i16::from(letter),
        other => i16::from(other) + 256,
    }
}

/// Takes the leading digits, or what is no digit.
fn take<'a>(text: &mut &'a str, digits: bool) -> &'a str {
    let end = text.bytes().take_while(|byte| byte.is_ascii_digit() == digits).count();
    let (taken, rest) = text.split_at(end);
    *text = rest;
    taken
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use agent_api::release::Digest;

    use super::{Known, compare};
    use crate::lock::{Deb, Lock};
    use crate::store::Cache;

    #[test]
    fn versions_are_compared_as_dpkg_does() {
        for (older, newer) in [
            ("6.12.43-1", "6.12.48-1"),
            ("1.21.3-5", "1.21.3-5+deb13u1"),
            ("1.0~rc1-1", "1.0-1"),
            ("1.9-1", "1.10-1"),
            ("2.0-1", "1:1.0-1"),
            ("1.0-1", "1.0-1.1"),
            ("1.0", "1.0-1"),
            ("1.0a", "1.0+b"),
            ("1.0~~", "1.0~"),
            ("007-1", "8-1"),
        ] {
            assert_eq!(compare(older, newer), Ordering::Less, "{older} {newer}");
            assert_eq!(compare(newer, older), Ordering::Greater, "{older} {newer}");
        }
        assert_eq!(compare("0:1.00-1", "1.0-1"), Ordering::Equal);
    }

    fn lock(version: &str) -> Lock {
        let deb = Deb {
            name: "linux-image-amd64".to_owned(),
            version: version.to_owned(),
            architecture: "amd64".to_owned(),
            sha256: Digest::from_hex(&"0".repeat(64)).expect("a digest"),
            size: 1,
        };
        let mut lock = Lock::new(1);
        lock.debian.insert("os".to_owned(), vec![deb.clone()]);
        lock.debian.insert("kernel".to_owned(), vec![deb]);
        lock
    }

    #[test]
    fn a_lock_that_is_older_than_what_was_seen_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let mut known = Known::read(&cache).expect("nothing yet");
        known.learn(&lock("6.12.48-1"));
        known.learn(&lock("6.12.43-1"));
        known.write(&cache).expect("written");
        let known = Known::read(&cache).expect("read");
        fs_err::write(cache.path(super::FILE), "{\"chrony\":").expect("cut off");
        assert_eq!(Known::read(&cache).expect("as good as nothing"), Known::default());
        assert_eq!(known.warnings(&lock("6.12.48-1")), [""; 0]);
        let mut old = lock("6.12.43-1");
        old.without_security = true;
        let warnings = known.warnings(&old);
        assert!(warnings[0].contains("without Debian's security archive"), "{warnings:?}");
        let expected =
            "warning: older than what builds here have seen: linux-image-amd64 6.12.43-1 (6.12.48-1 is known)";
        assert_eq!(warnings[1], expected);
    }
}
