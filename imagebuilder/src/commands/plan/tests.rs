//! The plan against a cache that is empty, and against the definition of this workspace.

use std::path::Path;

use agent_api::release::Blob;

use super::survey::{State, survey};
use super::{AgentProfile, Builder, Job, looking, text, workspace};
use crate::kubernetes::modules::{KUBERNETES, SETS};
use crate::lock::{Deb, Lock};
use crate::store::Cache;

fn job(dir: &Path) -> Job {
    job_from(dir, "from: modules")
}

fn job_from(dir: &Path, source: &str) -> Job {
    job_with(dir, source, "")
}

/// `more`: lines of the definition.
fn job_with(dir: &Path, source: &str, more: &str) -> Job {
    let file = dir.join("appliance.yaml");
    let definition = format!(
        "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: edge, version: 1.4.0 }}\n\
         kubernetes: {{ version: v1.36.4, {source} }}\noutputs: [ {{ format: qcow2 }}, {{ format: iso }} ]\n\
         sign: {{ key: \"file:release.key\" }}\n{more}"
    );
    fs_err::write(&file, definition).expect("written");
    let pair = minisign::KeyPair::generate_unencrypted_keypair().expect("a key");
    fs_err::write(dir.join("release.key"), pair.sk.to_box(None).expect("a box").to_string()).expect("written");
    Job::load(&file).expect("a definition")
}

fn sources(cache: &Path) -> Builder {
    looking(Cache::look(cache), true).expect("the sources")
}

fn lock() -> Lock {
    let mut lock = Lock::new(1_760_000_000);
    let deb = |name: &str, size| Deb {
        name: name.to_owned(),
        version: "1".into(),
        architecture: "amd64".into(),
        sha256: crate::store::hash::bytes(name.as_bytes()),
        size,
    };
    lock.debian.insert("toolbox".into(), vec![deb("golang", 3)]);
    lock.debian.insert("os".into(), vec![deb("systemd", 4)]);
    lock.debian.insert("kernel".into(), vec![deb("linux-image-6", 5)]);
    for set in SETS {
        let digest = set.digest(&workspace().expect("the sources").join("packages")).expect("a digest");
        lock.modules.insert(set.name.to_owned(), digest);
    }
    lock
}

fn state(survey: &super::Survey, name: &str) -> State {
    let stage = survey.stages.iter().find(|stage| stage.name == name);
    stage.unwrap_or_else(|| panic!("no stage `{name}`")).state.clone()
}

#[test]
fn with_an_empty_cache_everything_is_to_make_in_its_order_and_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let job = job(dir.path());
    let cache = dir.path().join("cache");
    let survey = survey(&sources(&cache), &job.appliance, Some(&lock())).expect("a plan");
    assert!(!cache.exists(), "a plan only looks");
    for name in ["toolbox", "os", "kubernetes", "etcd", "agent"] {
        assert_eq!(state(&survey, name), State::ToMake, "{name}");
    }
    let after = |names: &[&str]| State::After(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(state(&survey, "templates"), after(&["kubernetes"]));
    assert_eq!(state(&survey, "appliance-layer"), after(&["agent", "templates", "cluster-state"]));
    assert_eq!(state(&survey, "initrd"), after(&["os", "agent"]));
    assert_eq!((survey.fetch.packages, survey.fetch.missing, survey.fetch.bytes), (3, 3, 12));
    assert_eq!(survey.fetch.modules.len(), SETS.len());
    assert_eq!(survey.content_bytes, None);
    let text = text(&survey, &job.appliance.outputs, "edge-1.4.0", true);
    assert!(text.starts_with("stage             state"), "{text}");
    assert!(text.contains("\ncontainers-layer  to make (after agent, kubernetes and 5 more)"), "{text}");
    assert!(text.contains("\nqcow2             to write"), "{text}");
    assert!(text.contains("  edge-1.4.0.qcow2, a disk of "), "{text}");
    assert!(text.contains("to fetch: 3 of 3 Debian packages, 12 B; Go modules of kubernetes, "), "{text}");
}

#[test]
fn without_a_lock_what_depends_on_it_waits_for_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let job = job(dir.path());
    let survey = survey(&sources(&dir.path().join("cache")), &job.appliance, None).expect("a plan");
    for name in ["toolbox", "os"] {
        assert_eq!(state(&survey, name), State::After(vec!["lock".into()]), "{name}");
    }
    assert_eq!(state(&survey, "etcd"), State::ToMake);
    let text = text(&survey, &job.appliance.outputs, "edge-1.4.0", false);
    assert!(text.contains("\nlock              to make"), "{text}");
    assert!(!text.contains("nothing to fetch") && text.contains("known once there is a lock"), "{text}");
}

#[test]
fn the_plan_says_where_the_programs_of_kubernetes_come_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let job = job_from(dir.path(), "from: upstream, url: \"https://mirror.example/k8s/\"");
    let sources = sources(&dir.path().join("cache"));
    let mut lock = lock();
    lock.modules.remove("kubernetes");
    for name in KUBERNETES.programs {
        let blob = Blob { digest: crate::store::hash::bytes(name.as_bytes()), size: 10 };
        lock.binaries.insert((*name).to_owned(), blob);
    }
    let found = survey(&sources, &job.appliance, Some(&lock)).expect("a plan");
    assert_eq!(state(&found, "kubernetes"), State::ToMake);
    assert_eq!((found.fetch.programs, found.fetch.program_bytes), (7, 70));
    let text = text(&found, &job.appliance.outputs, "edge-1.4.0", true);
    assert!(text.contains("the release files at `https://mirror.example/k8s`: 7 programs"), "{text}");
    assert!(text.contains("; 7 programs of Kubernetes, 70 B; Go modules of coredns, "), "{text}");
    let unlocked = survey(&sources, &job.appliance, None).expect("a plan");
    assert_eq!(state(&unlocked, "kubernetes"), State::After(vec!["lock".into()]));
}

#[test]
fn the_plan_has_other_releases_of_kubernetes_for_clusters() {
    let dir = tempfile::tempdir().expect("a folder");
    let versions = "services: { provisioning: { interface: { name: ens4 }, address: 172.22.0.1/24 }, clusters: { versions: [ \
        { version: v1.35.8 }, { version: v1.36.3, from: upstream, url: \"https://mirror.example/k8s\" } ] } }\n";
    let job = job_with(dir.path(), "from: modules", versions);
    let found = survey(&sources(&dir.path().join("cache")), &job.appliance, None).expect("a plan");
    assert_eq!(state(&found, "kubernetes v1.35.8"), State::ToMake);
    assert!(found.fetch.modules.contains(&"kubernetes v1.35.8".to_owned()), "{:?}", found.fetch.modules);
    assert_eq!(state(&found, "kubernetes v1.36.3"), State::After(vec!["lock".into()]));
    for version in ["v1.35.8", "v1.36.3"] {
        for stage in ["cluster-images", "clusters"] {
            assert!(matches!(state(&found, &format!("{stage} {version}")), State::After(_)), "{stage} {version}");
        }
    }
}

#[test]
fn a_lock_of_another_source_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let job = job_from(dir.path(), "from: upstream, url: \"https://mirror.example\"");
    let error = survey(&sources(&dir.path().join("cache")), &job.appliance, Some(&lock())).expect_err("no programs");
    assert!(format!("{error:#}").contains("`foothold lock --update`"), "{error:#}");
}

#[test]
fn the_plan_says_that_a_development_build_is_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let job = job(dir.path());
    let told = |agent| {
        let at = Builder { agent, ..sources(&dir.path().join("cache")) };
        let survey = survey(&at, &job.appliance, None).expect("a plan");
        survey.stages.into_iter().find(|stage| stage.name == "agent").expect("the agent").note
    };
    assert_eq!(told(AgentProfile::Site), "the box's own program");
    let note = told(AgentProfile::Development);
    for word in ["development build", "bigger", "slower", "not the same bytes", "not for a site"] {
        assert!(note.contains(word), "{note}");
    }
}

#[test]
fn a_key_of_releases_signs_no_development_build() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut job = job(dir.path());
    job.check_agent(AgentProfile::Site).expect("the key is for it");
    let refused = job.check_agent(AgentProfile::Development).expect_err("refused");
    assert!(refused.message.contains("appliance.yaml` names a key for releases: file:"), "{refused}");
    assert!(refused.hint.contains("your development key"), "{refused}");
    job.appliance.sign = None;
    job.check_agent(AgentProfile::Development).expect("a development key signs it");
}
