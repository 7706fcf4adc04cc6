//! `foothold lock`: writes `appliance.lock`, and says what moved.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::release::Blob;
use serde_json::json;

use crate::cli;
use crate::lock::Lock;
use crate::report::{CommandError, Outcome, Report};

use super::common::{Job, builder, locked};

/// Makes the lock, or moves it.
pub fn run(args: &cli::Lock, report: &Report) -> Result<Outcome, CommandError> {
    let job = Job::load(&args.definition.file)?;
    let at = builder(&args.sources, report)?;
    let path = job.lock_path();
    let before = Lock::read(&path).ok().flatten();
    let lock = locked(&at, &job, args.update)?;
    let moved = before.as_ref().map(|before| changes(before, &lock)).unwrap_or_default();
    let packages: usize = lock.debian.values().map(Vec::len).sum();
    let data = json!({ "lock": path.to_string_lossy(), "packages": packages, "modules": lock.modules.len(), "programs": lock.binaries.len(), "images": lock.images.len(), "moved": moved });
    Ok(Outcome::Data { kind: "lock", data })
}

/// What differs, a line each: `os: tzdata 2025a -> 2025b`.
fn changes(before: &Lock, after: &Lock) -> Vec<String> {
    let mut lines = Vec::new();
    for (set, debs) in &after.debian {
        let old = before.debian.get(set).map(Vec::as_slice).unwrap_or_default();
        for deb in debs {
            match old.iter().find(|other| other.name == deb.name) {
                Some(other) if other.version == deb.version => {}
                Some(other) => lines.push(format!("{set}: {} {} -> {}", deb.name, other.version, deb.version)),
                None => lines.push(format!("{set}: {} {} is new", deb.name, deb.version)),
            }
        }
        let gone = old.iter().filter(|other| !debs.iter().any(|deb| deb.name == other.name));
        lines.extend(gone.map(|other| format!("{set}: {} {} is gone", other.name, other.version)));
    }
    for (set, digest) in &after.modules {
        if before.modules.get(set) != Some(digest) {
            lines.push(format!("modules: {set} has changed"));
        }
    }
    lines.extend(moved("kubernetes", &before.binaries, &after.binaries));
    let versions: BTreeSet<&String> = before.cluster_binaries.keys().chain(after.cluster_binaries.keys()).collect();
    for version in versions {
        let what = format!("kubernetes {version}");
        lines.extend(moved(&what, before.binaries_of(version), after.binaries_of(version)));
    }
    lines.extend(moved("content", &before.files, &after.files));
    let images = |lock: &Lock| lock.images.iter().map(|(name, image)| (name.clone(), image.top().blob())).collect();
    lines.extend(moved("images", &images(before), &images(after)));
    lines
}

/// Files by name that are new, others, or gone.
fn moved(what: &str, before: &BTreeMap<String, Blob>, after: &BTreeMap<String, Blob>) -> Vec<String> {
    let there = after.iter().filter_map(|(name, blob)| match before.get(name) {
        Some(other) if other == blob => None,
        Some(_) => Some(format!("{what}: {name} has changed")),
        None => Some(format!("{what}: {name} is new")),
    });
    let gone = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("{what}: {name} is gone"));
    there.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use agent_api::release::Digest;

    use super::{Blob, changes};
    use crate::lock::{Deb, Lock};
    use crate::store::hash;

    fn lock(packages: &[(&str, &str)]) -> Lock {
        let deb = |(name, version): &(&str, &str)| Deb {
            name: (*name).into(),
            version: (*version).into(),
            architecture: "amd64".into(),
            sha256: Digest::from_hex(&"0".repeat(64)).expect("a digest"),
            size: 1,
        };
        let mut lock = Lock::new(1);
        lock.debian.insert("os".into(), packages.iter().map(deb).collect());
        lock
    }

    #[test]
    fn what_moved_is_named() {
        let lines = changes(&lock(&[("a", "1"), ("b", "1")]), &lock(&[("a", "2"), ("c", "1")]));
        assert_eq!(lines, ["os: a 1 -> 2", "os: c 1 is new", "os: b 1 is gone"]);
    }

    #[test]
    fn a_program_that_changed_is_named() {
        let with = |programs: &[(&str, &str)]| {
            let blob = |text: &str| Blob { digest: hash::bytes(text.as_bytes()), size: 1 };
            let mut lock = lock(&[]);
            lock.binaries = programs.iter().map(|(name, text)| ((*name).to_owned(), blob(text))).collect();
            lock
        };
        let before = with(&[("kubeadm", "a"), ("kubelet", "b")]);
        let lines = changes(&before, &with(&[("kubeadm", "a"), ("kubectl", "c"), ("kubelet", "d")]));
        assert_eq!(lines, ["kubernetes: kubectl is new", "kubernetes: kubelet has changed"]);
    }
}
