//! How far the stages are, and how long they still take: by what each took here the last time, else on a machine of two cores
//! with empty caches.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::Stage;
use super::make::AT_ONCE;
use crate::host::files;
use crate::store::Cache;

/// File of the cache with the seconds that each stage took the last time that it was made.
const FILE: &str = "stage-secs.json";
/// Seconds of the stages that take long when nothing is cached, on 2 cores. Each is made beside others, as here.
const FIRST: [(&str, f64); 26] = [
    ("agent", 1119.0),
    ("kubernetes", 638.0),
    ("ramdisk", 389.0),
    ("agent-development", 320.0),
    ("containers-layer", 60.0),
    ("os-image ", 350.0),
    ("helm", 207.0),
    ("coredns", 206.0),
    ("os", 134.0),
    ("flannel", 108.0),
    ("service-image/ironic", 97.0),
    ("containerd", 90.0),
    ("service-image/keepalived", 86.0),
    ("registry", 46.0),
    ("cri-tools", 45.0),
    ("etcd", 44.0),
    ("service-image/haproxy", 27.0),
    ("cluster-state", 26.0),
    ("kubernetes-layer", 26.0),
    ("debian-repository", 22.0),
    ("service-image/flannel", 20.0),
    ("initrd", 18.0),
    ("runc", 13.0),
    ("service-image/", 11.0),
    ("cni", 8.0),
    ("appliance-layer", 6.0),
];
/// Limits of the pace: what was measured beyond them is taken for chance.
const PACE: (f64, f64) = (0.1, 10.0);
/// Shorter stages say nothing of the pace.
const ENOUGH: f64 = 5.0;

/// The stages of a build, and what is known of their times.
pub(super) struct Course<'a> {
    stages: Vec<Planned<'a>>,
    /// Where times are kept; `None`: a cache that is only looked at.
    path: Option<PathBuf>,
    kept: BTreeMap<String, f64>,
}

/// A stage.
struct Planned<'a> {
    name: &'a str,
    timed_as: &'a str,
    needs: &'a [String],
    go: bool,
    /// Seconds that it took before.
    known: f64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waits,
    Runs(Instant),
    /// It was there, or was made in so many seconds.
    Made(Option<f64>),
}

/// How far they are.
#[derive(Debug, PartialEq)]
pub(super) struct Left {
    pub made: u64,
    pub all: u64,
    /// Seconds.
    pub secs: f64,
    /// What is being made, and for how many seconds.
    pub running: Vec<(String, u64)>,
}

impl<'a> Course<'a> {
    /// Reads what is known. A file that cannot be read is as good as none: it is only about estimates.
    pub fn new(stages: &'a [Stage<'_>], cache: &Cache) -> Self {
        let path = cache.path(FILE);
        let kept: BTreeMap<String, f64> =
            fs_err::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let planned = |stage: &'a Stage<'_>| Planned {
            name: &stage.name,
            timed_as: &stage.timed_as,
            needs: &stage.needs,
            go: stage.go,
            known: kept.get(&stage.timed_as).copied().unwrap_or_else(|| first(&stage.timed_as)),
            state: State::Waits,
        };
        let stages = stages.iter().map(planned).collect();
        Self { stages, path: (!cache.only_looks()).then_some(path), kept }
    }

    /// Says how far a stage is. Returns under which name its times are kept.
    fn change(&mut self, name: &str, state: State) -> Option<&'a str> {
        let planned = self.stages.iter_mut().find(|planned| planned.name == name)?;
        planned.state = state;
        Some(planned.timed_as)
    }

    /// A stage is looked for, and made if it is not there.
    pub fn begins(&mut self, name: &str) {
        self.change(name, State::Runs(Instant::now()));
    }

    /// It is there. `secs`: what it took, unless it was there before.
    pub fn is_made(&mut self, name: &str, secs: Option<f64>) {
        let timed_as = self.change(name, State::Made(secs));
        let (Some(path), Some(secs), Some(timed_as)) = (&self.path, secs, timed_as) else { return };
        self.kept.insert(timed_as.to_owned(), (secs * 10.0).round() / 10.0);
        let text = serde_json::to_vec_pretty(&self.kept).unwrap_or_default();
        if let Err(error) = files::write_whole(path, &text) {
            log::debug!("{error}");
        }
    }

    /// How far they are.
    pub fn left(&self, now: Instant) -> Left {
        let pace = self.pace();
        let secs_of = |stage: &Planned<'_>| match stage.state {
            State::Made(_) => None,
            State::Waits => Some(stage.known * pace),
            State::Runs(since) => Some((stage.known * pace - secs(since, now)).max(0.0)),
        };
        let running = self.stages.iter().filter_map(|stage| match stage.state {
            State::Runs(since) => Some((stage.name.to_owned(), now.duration_since(since).as_secs())),
            _ => None,
        });
        let made = self.stages.iter().filter(|stage| matches!(stage.state, State::Made(_))).count();
        Left {
            made: made as u64,
            all: self.stages.len() as u64,
            secs: self.simulated(self.stages.iter().map(secs_of).collect()),
            running: running.collect(),
        }
    }

    /// How many times as long everything takes now, by what was made. A stage that is late may have more to do than the last
    /// time: that says nothing of the others.
    fn pace(&self) -> f64 {
        let pair = |stage: &Planned<'_>| match stage.state {
            State::Made(secs) => Some((secs?, stage.known)),
            State::Runs(_) | State::Waits => None,
        };
        let pairs = self.stages.iter().filter_map(pair).filter(|(_, known)| *known >= ENOUGH);
        let (took, known) = pairs.fold((0.0, 0.0), |(took, known), pair| (took + pair.0, known + pair.1));
        if known > 0.0 { (took / known).clamp(PACE.0, PACE.1) } else { 1.0 }
    }

    /// Seconds until all are made, when each takes what `left` says (`None`: it is made) and they are begun as `make` does.
    fn simulated(&self, mut left: Vec<Option<f64>>) -> f64 {
        let mut runs: Vec<bool> = self.stages.iter().map(|stage| matches!(stage.state, State::Runs(_))).collect();
        let mut now = 0.0;
        loop {
            for at in 0..self.stages.len() {
                let stage = &self.stages[at];
                let full = runs.iter().filter(|runs| **runs).count() >= AT_ONCE;
                let compiles = self.stages.iter().zip(&runs).any(|(other, runs)| *runs && other.go);
                let open = |need: &String| {
                    self.stages.iter().zip(&left).any(|(other, left)| other.name == need && left.is_some())
                };
                let held_up = runs[at] || full || stage.go && compiles || stage.needs.iter().any(open);
                runs[at] |= left[at].is_some() && !held_up;
            }
            let ends = left.iter().zip(&runs).filter(|(_, runs)| **runs).filter_map(|(left, _)| *left);
            let Some(step) = ends.reduce(f64::min) else { return now };
            now += step;
            for (left, runs) in left.iter_mut().zip(&mut runs).filter(|(_, runs)| **runs) {
                *left = left.map(|secs| secs - step).filter(|secs| *secs > 0.0);
                *runs = left.is_some();
            }
        }
    }
}

impl Left {
    /// `about 12 min left; agent since 300 s, kubernetes since 280 s`.
    pub fn words(&self) -> String {
        let left = match self.secs {
            secs if secs < 1.0 => "done any moment".to_owned(),
            secs if secs < 90.0 => format!("about {:.0} s left", (secs / 10.0).ceil() * 10.0),
            secs => format!("about {:.0} min left", (secs / 60.0).ceil()),
        };
        let running: Vec<String> = self.running.iter().map(|(name, secs)| format!("{name} since {secs} s")).collect();
        if running.is_empty() { left } else { format!("{left}; {}", running.join(", ")) }
    }
}

fn secs(since: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(since).as_secs_f64()
}

/// Seconds of a stage that was never made here.
fn first(name: &str) -> f64 {
    let exact = FIRST.iter().find(|(known, _)| *known == name);
    let found =
        exact.or_else(|| FIRST.iter().find(|(known, _)| known.ends_with([' ', '/']) && name.starts_with(known)));
    found.map_or(1.0, |(_, secs)| *secs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    /// An empty cache, as long as its folder is kept.
    fn cache() -> (TempDir, Cache) {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        (dir, cache)
    }

    fn stage(name: &str, needs: &[&str], go: bool) -> Stage<'static> {
        Stage { go, ..Stage::new(name, "", needs.to_vec(), |_, _| anyhow::bail!("it is never made here")) }
    }

    /// As in a first build: Rust beside Go, whose stages come one after the other.
    fn stages() -> Vec<Stage<'static>> {
        vec![
            stage("kubernetes", &["lock"], true),
            stage("coredns", &["lock"], true),
            stage("agent", &[], false),
            stage("initrd", &["agent"], false),
        ]
    }

    #[test]
    fn the_longest_road_counts_and_a_slower_machine_gets_more_time() {
        let (_dir, cache) = cache();
        let stages = stages();
        let mut course = Course::new(&stages, &cache);
        let now = Instant::now();
        let about = |course: &Course<'_>, now| course.left(now).secs.round();
        assert!((about(&course, now) - (1119.0 + 18.0)).abs() < 1.0, "agent, then initrd");
        course.begins("kubernetes");
        course.begins("agent");
        let later = now + Duration::from_secs(600);
        assert!((about(&course, later) - 537.0).abs() <= 1.0);
        assert_eq!(course.left(later).running.len(), 2);
        // What was made at twice the time says that the rest takes twice the time.
        course.is_made("kubernetes", Some(1276.0));
        let left = course.left(now + Duration::from_secs(1000));
        assert!((left.secs - (2.0 * 1119.0 - 1000.0 + 36.0)).abs() <= 1.0, "{left:?}");
        assert_eq!((left.made, left.all), (1, 4));
        // What is late has no time left, and says nothing of the rest.
        let late = course.left(now + Duration::from_secs(3 * 1119));
        assert!(late.secs > 36.0 && late.secs < 600.0, "{late:?}");
        let later = course.left(now + Duration::from_secs(9 * 1119));
        assert!((late.secs - later.secs).abs() < 1.0, "{late:?} {later:?}");
        // The next build knows this machine.
        let again = Course::new(&stages, &cache);
        assert_eq!(again.stages.iter().map(|stage| stage.known).collect::<Vec<_>>(), [1276.0, 206.0, 1119.0, 18.0]);
    }

    #[test]
    fn what_is_made_in_two_ways_has_two_times() {
        let (_dir, cache) = cache();
        let quick = [Stage { timed_as: "agent-development".to_owned(), ..stage("agent", &[], false) }];
        Course::new(&quick, &cache).is_made("agent", Some(20.0));
        let known = |stages: &[Stage<'_>]| Course::new(stages, &cache).stages[0].known.to_string();
        assert_eq!([known(&quick), known(&[stage("agent", &[], false)])], ["20", "1119"]);
    }

    #[test]
    fn what_is_in_the_cache_takes_no_time_and_says_nothing_of_the_pace() {
        let (_dir, cache) = cache();
        let stages = stages();
        let mut course = Course::new(&stages, &cache);
        for name in ["kubernetes", "coredns", "agent"] {
            course.is_made(name, None);
        }
        let left = course.left(Instant::now());
        assert_eq!(left, Left { made: 3, all: 4, secs: 18.0, running: Vec::new() });
        assert!(Course::new(&stages, &cache).kept.is_empty());
    }

    #[test]
    fn it_is_said_in_words() {
        let running = vec![("agent".to_owned(), 300), ("kubernetes".to_owned(), 280)];
        let words = |secs, running| Left { made: 1, all: 2, secs, running }.words();
        assert_eq!(words(661.0, running), "about 12 min left; agent since 300 s, kubernetes since 280 s");
        assert_eq!(
            (words(41.0, Vec::new()).as_str(), words(0.0, Vec::new()).as_str()),
            ("about 50 s left", "done any moment")
        );
        assert_eq!((first("os-image node"), first("service-image/helm"), first("files")), (350.0, 11.0, 1.0));
    }
}
