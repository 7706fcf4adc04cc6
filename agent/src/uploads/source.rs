//! Uploads as the content server and the status see them.
//!
//! Each is under its full name, `images/<owner>/<cluster>/<name>`; and under `images/<name>` as long as there is only
//! one image of that name, so that who has but one cluster needs not to know more.

use std::collections::{BTreeMap, HashMap};

use agent_api::bpa::Kind;
use agent_api::release::ContentKind;
use agent_api::rest::Share;

use super::record::folder;
use super::{Entry, UploadKey, Uploads};
use crate::content::space::Keeper;
use crate::content::{Held, Source};

pub(super) const fn content_kind(kind: Kind) -> ContentKind {
    match kind {
        Kind::OsImages => ContentKind::OsImage,
        Kind::BinaryImages | Kind::ContainerImages => ContentKind::File,
    }
}

/// The complete image at a path of the content server.
pub(super) fn key_of(images: &BTreeMap<UploadKey, Entry>, path: &str) -> Option<UploadKey> {
    let (first, rest) = path.split_once('/')?;
    let kind = Kind::ALL.into_iter().find(|kind| folder(*kind) == Some(first))?;
    let whole = |entry: &Entry| entry.record.digest.is_some();
    let parts: Vec<&str> = rest.split('/').collect();
    match parts[..] {
        [name] => {
            let mut found = images.iter().filter(|(key, entry)| key.kind == kind && key.name == name && whole(entry));
            let (key, _) = found.next()?;
            found.next().is_none().then(|| key.clone())
        }
        [owner, cluster, name] => {
            let key = UploadKey { kind, owner: owner.to_owned(), cluster: cluster.to_owned(), name: name.to_owned() };
            images.get(&key).is_some_and(whole).then_some(key)
        }
        _ => None,
    }
}

impl Uploads {
    fn held(&self, entry: &Entry, path: &str) -> Option<Held> {
        let record = &entry.record;
        let digest = record.digest.clone()?;
        let file = self.blob(record)?;
        Some(Held { path: path.to_owned(), kind: content_kind(record.key.kind), file, digest, size: record.length })
    }
}

impl Source for Uploads {
    fn find(&self, path: &str) -> Option<Held> {
        let state = self.lock();
        if let Some(made) = state.made.get(path) {
            return Some(made.clone());
        }
        if let Some(entry) = key_of(&state.images, path).and_then(|key| state.images.get(&key)) {
            return self.held(entry, path);
        }
        // Checksums are beside the image under each of its names.
        let (image, suffix) = path.rsplit_once('.')?;
        let entry = state.images.get(&key_of(&state.images, image)?)?;
        let sum = entry.sums.iter().find(|sum| sum.path.rsplit_once('.').is_some_and(|(_, found)| found == suffix))?;
        Some(Held { path: path.to_owned(), ..sum.clone() })
    }

    fn list(&self) -> Vec<Held> {
        let state = self.lock();
        let mut all: BTreeMap<String, Held> = (*state.made).clone();
        let mut names: HashMap<(Kind, &str), usize> = HashMap::new();
        for (key, _) in state.images.iter().filter(|(_, entry)| entry.record.digest.is_some()) {
            *names.entry((key.kind, &key.name)).or_default() += 1;
        }
        for (key, entry) in &state.images {
            let Some(full) = entry.record.path() else { continue };
            let Some(held) = self.held(entry, &full) else { continue };
            let short = format!("{}/{}", folder(key.kind).unwrap_or_default(), key.name);
            let alone = names.get(&(key.kind, &*key.name)) == Some(&1);
            let both = [Some(full), alone.then_some(short)];
            for path in both.into_iter().flatten() {
                for sum in &entry.sums {
                    let suffix = sum.path.rsplit_once('.').map_or("", |(_, suffix)| suffix);
                    let beside = format!("{path}.{suffix}");
                    all.insert(beside.clone(), Held { path: beside, ..sum.clone() });
                }
                all.insert(path.clone(), Held { path, ..held.clone() });
            }
        }
        all.into_values().collect()
    }
}

impl Keeper for Uploads {
    fn shares(&self) -> Vec<(String, Share)> {
        let Ok(storage) = self.storage() else { return Vec::new() };
        let shares = storage.kinds.into_iter().map(|(kind, taken)| {
            let (used_bytes, limit_bytes) = (taken.used_bytes, taken.quota_bytes);
            let full = (used_bytes >= limit_bytes).then(|| format!("uploads of {kind} have all of their share"));
            (kind.to_string(), Share { used_bytes, limit_bytes, full })
        });
        shares.collect()
    }
}
