//! `foothold diff`: what differs between two images or locks, and the bundle that turns one image into the other.
//!
//! ```text
//! A ─▶ Side ─┐                        ┌─▶ table, data
//!            ├─ compare (pure) ─▶ Diff ┤
//! B ─▶ Side ─┘                        └─▶ with --bundle: bundle
//! ```

mod side;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::{Value, json};

use self::side::{BLOBS, Entry, Opened, Section, Side};
use super::table::table;
use crate::bundle::{self, InImage};
use crate::cli;
use crate::error::WrongUsage;
use crate::host::files;
use crate::release::sign::Signer;
use crate::report::{CommandError, Outcome, Report, details};

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Its name.
    pub name: String,
    /// Version or digest before; `None`: it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Version or digest after; `None`: it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Bytes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_bytes: Option<u64>,
    /// Bytes after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_bytes: Option<u64>,
}

/// What differs, by kind. Only kinds that both sides know are in it.
pub type Diff = BTreeMap<String, Vec<Change>>;

/// Compares, and writes the bundle when it is asked for.
pub fn run(args: &cli::Diff, report: &Report) -> Result<Outcome, CommandError> {
    let opened = [side::open(&args.a)?, side::open(&args.b)?];
    let (a, b) = (Side::of(&args.a, &opened[0])?, Side::of(&args.b, &opened[1])?);
    let diff = compare(&a, &b);
    report.data(&describe(&a, &b, &diff));
    let mut data = data(&a, &b, &diff);
    if let Some(out) = &args.bundle {
        data["bundle"] = bundle(args, out, &opened, report)?;
    }
    Ok(Outcome::Data { kind: "diff", data })
}

/// Writes the bundle; what is said about it.
fn bundle(args: &cli::Diff, out: &Path, opened: &[Opened; 2], report: &Report) -> Result<Value, CommandError> {
    let image = |opened: &'_ Opened, path: &Path| match opened {
        Opened::Image(..) => Ok(()),
        Opened::Lock(_) => Err(WrongUsage {
            message: format!("`{}` is a lock: a bundle is made of two images", path.display()),
            hint: "`foothold build` makes the image of a lock".to_owned(),
        }),
    };
    image(&opened[0], &args.a)?;
    image(&opened[1], &args.b)?;
    if let Some(image) = [&args.a, &args.b].into_iter().find(|image| files::is_same(image, out)) {
        return Err(WrongUsage {
            message: format!("`{}` is one of the two images: the bundle would take its place", image.display()),
            hint: "name another file".to_owned(),
        }
        .into());
    }
    let [Opened::Image(a, found_a, release_a), Opened::Image(b, found_b, release_b)] = opened else {
        return Ok(Value::Null);
    };
    let signer = Signer::open(args.key.as_ref())?;
    let step = report.step("diff", "bundle");
    let a = InImage { medium: a, found: found_a, release: release_a };
    let b = InImage { medium: b, found: found_b, release: release_b };
    let written = bundle::write(&a, &b, &signer, out, &mut |done, total| {
        step.bytes(done, Some(total));
        report.cancel().check()
    })?;
    step.done_with(details([("bytes", written.bytes.into())]));
    let files = written.bundle.files.len();
    report.data(&format!("`{}` turns a into b: {files} files, {}", out.display(), HumanBytes(written.bytes)));
    Ok(json!({ "file": out.to_string_lossy(), "bytes": written.bytes, "files": files }))
}

/// Everything that is not the same on both sides.
fn compare(a: &Side, b: &Side) -> Diff {
    let mut diff = Diff::new();
    for (kind, before) in &a.sections {
        if let Some(after) = b.sections.get(kind) {
            diff.insert((*kind).to_owned(), changes(before, after));
        }
    }
    if a.kind == b.kind {
        let kinds: BTreeSet<&String> = a.more.keys().chain(b.more.keys()).collect();
        let of = |side: &Side, kind: &String| side.more.get(kind).cloned().unwrap_or_default();
        diff.extend(kinds.into_iter().map(|kind| (kind.clone(), changes(&of(a, kind), &of(b, kind)))));
    }
    diff
}

fn changes(before: &Section, after: &Section) -> Vec<Change> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &String| {
        let (from, to) = (before.get(name), after.get(name));
        let value = |entry: Option<&Entry>| entry.map(|entry| entry.value.clone());
        let bytes = |entry: Option<&Entry>| entry.and_then(|entry| entry.bytes);
        (from != to).then(|| Change {
            name: name.clone(),
            from: value(from),
            to: value(to),
            from_bytes: bytes(from),
            to_bytes: bytes(to),
        })
    };
    names.into_iter().filter_map(change).collect()
}

fn is_same(diff: &Diff) -> bool {
    diff.values().all(Vec::is_empty)
}

fn data(a: &Side, b: &Side, diff: &Diff) -> Value {
    let side = |side: &Side| json!({ "file": side.name, "kind": side.kind, "release": side.release, "title": side.title, "bytes": side.bytes });
    json!({ "a": side(a), "b": side(b), "same": is_same(diff), "changes": diff })
}

fn describe(a: &Side, b: &Side, diff: &Diff) -> String {
    let mut rows = vec![super::table::row(["", "a", "b"])];
    let mut row = |name: &str, value: &dyn Fn(&Side) -> String| {
        if !value(a).is_empty() || !value(b).is_empty() {
            rows.push(vec![name.to_owned(), value(a), value(b)]);
        }
    };
    row("file", &|side| side.name.clone());
    row("appliance", &|side| side.title.clone());
    row("release", &|side| side.release.clone().unwrap_or_default().chars().take(16).collect());
    row("size", &|side| side.bytes.map_or_else(String::new, |bytes| HumanBytes(bytes).to_string()));
    row("store", &|side| side.sections.get(BLOBS).map_or_else(String::new, |blobs| HumanBytes(sum(blobs)).to_string()));
    let mut text = table(&rows, &[]);
    if is_same(diff) {
        return text + "\nnothing differs\n";
    }
    for (kind, changes) in diff.iter().filter(|(_, changes)| !changes.is_empty()) {
        let _ = writeln!(text, "\n{kind}");
        text += &if kind == BLOBS { blobs(changes) } else { lines(changes) };
    }
    text
}

fn sum(section: &Section) -> u64 {
    section.values().filter_map(|entry| entry.bytes).sum()
}

/// Nobody reads digests of blobs: how many came and went.
fn blobs(changes: &[Change]) -> String {
    let count = |bytes: &dyn Fn(&Change) -> Option<u64>| {
        let found: Vec<u64> = changes.iter().filter_map(bytes).collect();
        (found.len(), HumanBytes(found.iter().sum()))
    };
    let ((new, new_bytes), (gone, gone_bytes)) = (count(&|change| change.to_bytes), count(&|change| change.from_bytes));
    format!("  + {new}, {new_bytes}\n  - {gone}, {gone_bytes}\n")
}

fn lines(changes: &[Change]) -> String {
    let rows: Vec<Vec<String>> = changes
        .iter()
        .map(|change| {
            let sign = match (&change.from, &change.to) {
                (None, _) => "+",
                (_, None) => "-",
                (Some(_), Some(_)) => "~",
            };
            let values: Vec<String> = [&change.from, &change.to].into_iter().flatten().map(|v| short(v)).collect();
            let sizes: Vec<String> =
                [change.from_bytes, change.to_bytes].into_iter().flatten().map(|b| HumanBytes(b).to_string()).collect();
            vec![format!("  {sign}"), change.name.clone(), values.join(" -> "), sizes.join(" -> ")]
        })
        .collect();
    table(&rows, &[])
}

/// A digest by its first letters.
fn short(value: &str) -> String {
    match value.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 => format!("sha256:{}", &hex[..12]),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests;
