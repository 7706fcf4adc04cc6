//! Kubernetes' own conformance tests, of the release that the box has, on any cluster whose registry has their images.
//!
//! ```text
//! tests/fixtures/conformance   e2e (Kubernetes' `e2e.test`), agnhost, sample-apiserver: compiled from pinned modules
//!   -> an appliance that carries images under the names that the tests pull -> its box, its clusters -> e2e against an API
//! ```
//! Of the images agnhost and sample-apiserver are Kubernetes' own; the others are Debian's programs under their names. Tests run one after
//! the other in a random order that a seed repeats, until their time is up: those that were not reached are counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use foothold::host::command::Run;
use foothold::kubernetes::modules::ModuleSet;
use serde_json::{Value, json};

use crate::appliance;
use crate::programs::{of_fixture, program};

/// The module set below `tests/fixtures`.
const SET: ModuleSet = ModuleSet {
    name: "conformance",
    module: "k8s.io/kubernetes",
    programs: &["agnhost", "e2e", "sample-apiserver"],
    one: None,
    renamed: &[],
    with_c: None,
};

/// The images that conformance tests pull (`test/utils/image/manifest.go` of the module), and what each runs.
const IMAGES: [(&str, &[&str], &[&str]); 8] = [
    ("agnhost:2.63.0", &["/agnhost"], &["pause"]),
    ("agnhost:2.55", &["/agnhost"], &["pause"]),
    ("busybox:1.37.0-1", &[], &["sh"]),
    ("glibc-dns-testing:2.0.0", &[], &["sh"]),
    ("nginx:1.15-4", &["/usr/sbin/nginx", "-g", "daemon off;"], &[]),
    ("nginx:1.27-0", &["/usr/sbin/nginx", "-g", "daemon off;"], &[]),
    ("nonroot:1.5", &["/agnhost"], &["pause"]),
    ("sample-apiserver:1.29.2", &["/sample-apiserver"], &[]),
];

/// What may be set from outside: which tests, for how long, in which order.
const FOCUS: &str = "FOOTHOLD_CONFORMANCE_FOCUS";
const SECS: &str = "FOOTHOLD_CONFORMANCE_SECS";
const SEED: &str = "FOOTHOLD_CONFORMANCE_SEED";

fn asked(variable: &str, otherwise: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
}

/// The compiled tests, and the programs of their images, by name.
pub type Programs = BTreeMap<&'static str, PathBuf>;

/// Compiles the tests, and the kubectl that they run.
///
/// # Panics
/// When they cannot be compiled.
pub fn programs() -> Programs {
    let mut programs = of_fixture(&SET).unwrap_or_else(|error| panic!("compiling the tests: {error:#}"));
    programs.insert("kubectl", program("kubernetes", "kubectl"));
    programs
}

/// Writes the recipes of the images into a folder. Returns them as items of a definition's `content.images` that lies there.
///
/// # Panics
/// When they cannot be written.
pub fn images(dir: &Path, programs: &Programs) -> String {
    let sources = appliance::builder().expect("a builder").workspace.join("tests/fixtures/conformance/image");
    let recipe = fs_err::read_to_string(sources.join("image.yaml")).expect("the recipe");
    let mut lines = String::new();
    let localhost = localhost();
    for (image, entrypoint, cmd) in IMAGES {
        let name = image.replace(':', "-");
        let folder = dir.join(&name);
        fs_err::create_dir(&folder).expect("a folder");
        let own = format!("{recipe}entrypoint: {}\ncmd: {}\n", json!(entrypoint), json!(cmd));
        fs_err::write(folder.join("image.yaml"), own).expect("written");
        for file in ["group", "passwd"] {
            fs_err::copy(sources.join(file), folder.join(file)).expect("copied");
        }
        for (file, text) in &localhost {
            fs_err::write(folder.join(file), text).expect("written");
        }
        for program in ["agnhost", "sample-apiserver"] {
            fs_err::copy(&programs[program], folder.join(program)).expect("copied");
        }
        let line = format!("  - {{ name: \"registry.k8s.io/e2e-test-images/{image}\", from: {name} }}\n");
        lines.push_str(&line);
    }
    lines
}

/// What programs of the images serve TLS with: a certificate of this host's own and its key, by the names that the tests know.
/// They are kept, since an image of another key would be another image.
fn localhost() -> Vec<(&'static str, String)> {
    let folder = appliance::builder().expect("a builder").cache.path("tests/conformance-localhost");
    let names = ["localhost.crt", "localhost.key"];
    if !folder.is_dir() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let unfinished = folder.with_extension(std::process::id().to_string());
        fs_err::create_dir_all(&unfinished).expect("a folder");
        for (name, text) in names.into_iter().zip([made.cert.pem(), made.signing_key.serialize_pem()]) {
            fs_err::write(unfinished.join(name), text).expect("written");
        }
        fs_err::rename(unfinished, &folder).expect("whole");
    }
    names.map(|name| (name, fs_err::read_to_string(folder.join(name)).expect("it is kept"))).to_vec()
}

/// Runs the tests and prints what came of them. `secs`: how long, unless it is set from outside.
///
/// # Panics
/// When one fails, or none ran.
#[expect(clippy::print_stdout, reason = "names and figures are what it is for")]
pub fn run(programs: &Programs, kubeconfig: &Path, dir: &Path, secs: u32) {
    let report = dir.join("report.json");
    let secs = asked(SECS, &secs.to_string());
    let tests = Run::new(&programs["e2e"])
        .args(["--provider=skeleton", "--disable-log-dump", "--test.timeout=0", "--ginkgo.no-color", "--ginkgo.v"])
        .args(["--ginkgo.randomize-all", "--non-blocking-taints=node-role.kubernetes.io/control-plane"])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--kubectl-path={}", programs["kubectl"].display()))
        .arg(format!("--ginkgo.focus={}", asked(FOCUS, r"\[Conformance\]")))
        .arg(format!("--ginkgo.seed={}", asked(SEED, "1")))
        .arg(format!("--ginkgo.timeout={secs}s"))
        .arg(format!("--ginkgo.json-report={}", report.display()));
    let ended = tests.output_with(&mut |line| println!("{line}"));
    if let Ok(said) = &ended {
        println!("{}", String::from_utf8_lossy(said));
    }
    let text = fs_err::read_to_string(&report).unwrap_or_else(|_| panic!("no report was written: {ended:?}"));
    let results = results(&serde_json::from_str(&text).expect("JSON"));
    for (name, secs) in &results.passed {
        println!("passed {secs:4.0} s  {name}");
    }
    for (name, why) in &results.failed {
        println!("FAILED  {name}\n{why}");
    }
    for (name, why) in &results.skipped {
        println!("skipped itself: {name}: {why}");
    }
    let (passed, failed, skipped) = (results.passed.len(), results.failed.len(), results.skipped.len());
    let left = results.left;
    println!(
        "conformance: {passed} passed, {failed} failed, {skipped} skipped themselves, {left} were not reached in {secs} s"
    );
    assert!(results.failed.is_empty(), "{:#?}", results.failed);
    assert!(passed > 0, "none ran: {ended:?}");
}

/// What came of the tests, by name.
#[derive(Debug, Default)]
struct Results {
    /// With seconds.
    passed: Vec<(String, f64)>,
    /// With the reason.
    failed: Vec<(String, String)>,
    /// Those that say that this cluster is not for them, with the reason.
    skipped: Vec<(String, String)>,
    /// How many were not reached, or were cut off when their time was up.
    left: usize,
}

/// Reads Ginkgo's report (`types.Report`).
fn results(report: &Value) -> Results {
    let mut results = Results::default();
    let suites = || report.as_array().into_iter().flatten();
    for spec in suites().filter_map(|suite| suite["SpecReports"].as_array()).flatten() {
        let test = spec["LeafNodeType"] == "It";
        let leaf = spec["LeafNodeText"].as_str().unwrap_or_default();
        let around = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let name = around.chain([leaf]).collect::<Vec<_>>().join(" ");
        let why = spec["Failure"]["Message"].as_str().unwrap_or_default().to_owned();
        match spec["State"].as_str().unwrap_or_default() {
            "passed" if test => results.passed.push((name, spec["RunTime"].as_f64().unwrap_or_default() / 1e9)),
            "skipped" if !why.is_empty() => results.skipped.push((name, why)),
            "passed" | "pending" | "skipped" | "interrupted" | "timedout" => {}
            _ => results.failed.push((name, why)),
        }
    }
    let wanted: u64 = suites().filter_map(|suite| suite["PreRunStats"]["SpecsThatWillRun"].as_u64()).sum();
    let ended = results.passed.len() + results.failed.len() + results.skipped.len();
    results.left = usize::try_from(wanted).unwrap_or(usize::MAX).saturating_sub(ended);
    results
}
