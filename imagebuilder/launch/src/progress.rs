//! Which crates are done, and how long the others take. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Seconds that crates take which take long, of a whole build on 2 cores; each of the others takes `OTHERS`. For estimates
/// only: the pace of what is done corrects them.
const LONG: [(&str, f64); 14] = [
    ("foothold", 80.0),
    ("zstd-sys", 17.0),
    ("russh", 16.0),
    ("agent-api", 15.0),
    ("k8s-openapi", 13.0),
    ("reqwest", 10.0),
    ("rustls", 10.0),
    ("clap_builder", 7.0),
    ("jiff", 6.0),
    ("rustix", 6.0),
    ("foothold-qemu", 5.0),
    ("oci-spec", 5.0),
    ("ring", 5.0),
    ("tokio", 5.0),
];
const OTHERS: f64 = 0.45;
/// So many seconds of what is known weigh as much as what is measured: the first crates say little.
const KNOWN: f64 = 15.0;
/// What is compiled sooner needs no line.
const SHORT: f64 = 5.0;
/// From so many crates on, nothing was compiled before: the first image is ahead, too.
const FIRST: usize = 100;

/// The crates of `cargo tree --prefix none`, each once: `name version`.
pub fn crates_of(tree: &str) -> Vec<String> {
    let krate = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(format!("{name} {version}"))
    };
    let mut all: Vec<String> = tree.lines().filter_map(krate).collect();
    all.sort();
    all.dedup();
    all
}

/// The crate of a JSON message of cargo that says that it is done, and whether it was done before. `None` for all other
/// messages, and for build scripts, after which their crate is still to come.
///
/// A package is `registry+URL#NAME@VERSION`, or `path+file:///FOLDER#VERSION` when the folder has its name.
/// Source: the Cargo Book, "External tools" and "Package ID specifications".
pub fn done(message: &str) -> Option<(String, bool)> {
    if !message.contains(r#""reason":"compiler-artifact""#) || message.contains(r#""kind":["custom-build"]"#) {
        return None;
    }
    let (_, rest) = message.split_once(r#""package_id":""#)?;
    let (id, _) = rest.split_once('"')?;
    let (url, own) = id.rsplit_once('#')?;
    let (name, version) = own.split_once('@').unwrap_or((url.rsplit_once('/')?.1, own));
    Some((format!("{name} {version}"), message.contains(r#""fresh":true"#)))
}

/// Whether a line of cargo's standard error is not about single crates, which are counted here.
pub fn is_for_users(line: &str) -> bool {
    let plain = line.trim_start().trim_start_matches("\x1b[0m").trim_start_matches("\x1b[1m");
    let plain = plain.trim_start_matches("\x1b[92m").trim_start_matches("\x1b[32m").trim_start();
    !["Compiling", "Finished", "Fresh"].iter().any(|word| plain.starts_with(word))
}

/// How far the crates are.
pub struct Progress {
    /// Those that are not done, with the seconds that each takes on 2 cores.
    left: BTreeMap<String, f64>,
    /// How many are to be compiled now: all but those that were done before.
    compiled: usize,
    /// Seconds of those that are done, as they take on 2 cores.
    work: f64,
    since: Instant,
    /// When all will be done, by what was known at the last change.
    end: Option<Instant>,
    /// Whether it was said what is ahead.
    said: bool,
}

impl Progress {
    pub fn new(crates: Vec<String>, now: Instant) -> Self {
        let weight = |krate: &str| {
            let name = krate.split(' ').next().unwrap_or_default();
            LONG.iter().find(|(long, _)| *long == name).map_or(OTHERS, |(_, secs)| *secs)
        };
        let left = crates.into_iter().map(|krate| (weight(&krate), krate)).map(|(secs, krate)| (krate, secs)).collect();
        Self { left, compiled: 0, work: 0.0, since: now, end: None, said: false }
    }

    /// A crate is done.
    pub fn is_done(&mut self, krate: &str, was_fresh: bool, now: Instant) {
        let Some(secs) = self.left.remove(krate) else { return };
        if was_fresh {
            return;
        }
        self.compiled += 1;
        self.work += secs;
        self.end = Some(now + self.secs_left(now));
    }

    /// Whether it takes long enough that a line is worth its place.
    pub fn has_begun(&self, now: Instant) -> bool {
        !self.left.is_empty() && now.duration_since(self.since).as_secs_f64() >= SHORT
    }

    fn secs_left(&self, now: Instant) -> Duration {
        let gone = now.duration_since(self.since).as_secs_f64();
        let pace = (self.work + KNOWN) / (gone + KNOWN);
        Duration::from_secs_f64(self.left.values().sum::<f64>() / pace)
    }

    /// What is ahead, once; `None` while nothing is compiled that takes long, and where a builder was there before.
    pub fn ahead(&mut self, now: Instant) -> Option<&'static str> {
        let is_first = self.has_begun(now) && self.compiled + self.left.len() >= FIRST;
        (is_first && !std::mem::replace(&mut self.said, true)).then_some(
            "The builder is compiled first. The first image takes 15 to 30 min after it, on 2 cores; each step will be shown.",
        )
    }

    /// The line for the user; `None` while there is nothing to say.
    pub fn text(&self, now: Instant) -> Option<String> {
        if !self.has_begun(now) {
            return None;
        }
        let all = self.compiled + self.left.len();
        let left = self.end.map_or_else(|| self.secs_left(now), |end| end.saturating_duration_since(now));
        Some(format!("compiling the builder: {} of {all} crates, {}", self.compiled, told(left)))
    }
}

/// A time that is left, in words.
fn told(left: Duration) -> String {
    match left.as_secs() {
        0 => "done at any moment".to_owned(),
        secs @ 1..60 => format!("about {secs} s left"),
        secs => format!("about {} min left", (secs + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_names_each_crate_once() {
        let tree = "foothold v0.1.0 (/a clone/imagebuilder)\nanyhow v1.0.1\nserde v1.0.2\nanyhow v1.0.1 (*)\n\
                    serde_derive v1.0.2 (proc-macro)\n\nserde v0.9.0\n";
        let expected = ["anyhow 1.0.1", "foothold 0.1.0", "serde 0.9.0", "serde 1.0.2", "serde_derive 1.0.2"];
        assert_eq!(crates_of(tree), expected);
    }

    #[test]
    fn a_crate_is_done_when_it_is_and_not_with_its_build_script() {
        let message = |id: &str, kind: &str, fresh: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","target":{{"kind":["{kind}"],"name":"x"}},"fresh":{fresh}}}"#
            )
        };
        let registry = "registry+https://index.example/#libc@0.2.191+x";
        let table = [
            (message(registry, "lib", false), Some(("libc 0.2.191+x", false))),
            (message(registry, "proc-macro", true), Some(("libc 0.2.191+x", true))),
            (message(registry, "custom-build", false), None),
            (message("path+file:///a/qemu#foothold-qemu@0.1.0", "lib", false), Some(("foothold-qemu 0.1.0", false))),
            (message("path+file:///a/foothold#0.1.0", "bin", false), Some(("foothold 0.1.0", false))),
            (format!(r#"{{"reason":"build-script-executed","package_id":"{registry}"}}"#), None),
            (r#"{"reason":"build-finished","success":true}"#.to_owned(), None),
            ("warning".to_owned(), None),
        ];
        for (message, expected) in table {
            assert_eq!(done(&message), expected.map(|(krate, fresh)| (krate.to_owned(), fresh)), "{message}");
        }
    }

    #[test]
    fn lines_about_single_crates_are_not_shown_and_all_others_are() {
        for line in ["   Compiling libc v0.2", "    Finished `release`", "\x1b[1m\x1b[92m   Compiling\x1b[0m libc v0.2"]
        {
            assert!(!is_for_users(line), "{line:?}");
        }
        for line in
            ["warning: unused", "    Blocking waiting for file lock", " Downloading crates ...", "", "error: no"]
        {
            assert!(is_for_users(line), "{line:?}");
        }
    }

    fn progress(names: &[&str], now: Instant) -> Progress {
        Progress::new(names.iter().map(|name| format!("{name} 1.0.0")).collect(), now)
    }

    #[test]
    fn what_was_there_before_does_not_count_and_what_is_left_follows_the_pace() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut all = progress(&["a", "b", "foothold"], start);
        assert_eq!(all.text(at(1)), None, "nobody waits yet");
        all.is_done("a 1.0.0", true, at(1));
        all.is_done("b 1.0.0", false, at(1));
        let secs_of = |text: Option<String>| {
            let text = text.expect("a line");
            let (_, rest) = text.split_once("about ").expect("a time");
            let (number, unit) = rest.split_once(' ').expect("a unit");
            number.parse::<u64>().expect("a number") * if unit.starts_with("min") { 60 } else { 1 }
        };
        let line = all.text(at(10)).expect("a line");
        assert!(line.starts_with("compiling the builder: 1 of 2 crates, about "), "{line}");
        assert!(secs_of(all.text(at(30))) < secs_of(all.text(at(6))), "it counts down");
        assert!(all.text(at(100_000)).expect("a line").ends_with("done at any moment"));
        // Twice as slow as on the machine where it was measured.
        let mut slow = progress(&["foothold", "x"], start);
        slow.is_done("x 1.0.0", false, at(120));
        assert!(
            secs_of(slow.text(at(120))) > 3 * secs_of(progress(&["foothold"], start).text(at(6))),
            "{:?}",
            slow.text(at(120))
        );
        all.is_done("foothold 1.0.0", false, at(130));
        assert_eq!(all.text(at(130)), None, "it is there");
    }

    #[test]
    fn the_first_image_is_announced_once_and_only_before_it() {
        let (start, later) = (Instant::now(), Instant::now() + Duration::from_secs(6));
        let names: Vec<String> = (0..FIRST).map(|number| format!("c{number} 1.0.0")).collect();
        let mut first = Progress::new(names.clone(), start);
        assert_eq!((first.ahead(start), first.ahead(later).is_some(), first.ahead(later)), (None, true, None));
        let mut next = Progress::new(names, start);
        next.is_done("c1 1.0.0", true, start);
        assert_eq!(next.ahead(later), None);
    }
}
