use std::io::Write as _;
use std::path::Path;

use rstest::rstest;

use super::problems;
use crate::config;
use crate::problems::{Problem, Problems, render};

/// A folder with a definition, and what it names.
struct Site(tempfile::TempDir);

impl Site {
    fn of(content: &str, files: &[(&str, &str)]) -> Self {
        let site = Self(tempfile::tempdir().expect("a folder"));
        let head = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: edge, version: 1.4.0 }\n";
        site.write("appliance.yaml", format!("{head}content:\n  {content}\n").as_bytes());
        for (name, text) in files {
            site.write(name, text.as_bytes());
        }
        site
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, bytes).expect("written");
    }

    fn problems(&self) -> Vec<Problem> {
        let file = self.0.path().join("appliance.yaml");
        let checked = config::check_file(&file).expect("read");
        assert!(!checked.problems.has_errors(), "{}", checked.problems);
        problems(&checked.appliance.expect("an appliance"), &checked.problems.text)
    }

    /// The key and what was found, of the only problem.
    fn problem(&self) -> (String, String) {
        let all = self.problems();
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(!all[0].hint.is_empty() && !all[0].expected.is_empty(), "{all:?}");
        assert!(!all[0].found.contains(&self.0.path().display().to_string()), "{all:?}");
        (all[0].key.clone(), all[0].found.clone())
    }
}

const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\n";
const KUSTOMIZATION: &str = "resources: [a.yaml]\n";

#[rstest]
#[case::no_yaml(&[("m/a.yaml", "a: [\n")], "m/a.yaml, document 1, line 1: this is no YAML")]
#[case::no_version(&[("m/a.yaml", "kind: Secret\n")], "m/a.yaml, document 1, line 1: the object has no `apiVersion`")]
#[case::second(&[("m/a.yaml", OBJECT), ("m/b/c.json", "[1]")], "m/b/c.json, document 1, line 1: expected an object")]
#[case::nothing(&[("m/notes.txt", "")], "it holds no file that ends with `.yaml`, `.yml` or `.json`")]
#[case::missing(&[("m/kustomization.yaml", KUSTOMIZATION)], "`m/kustomization.yaml:1`: there is no `a.yaml`")]
#[case::resource(&[("m/kustomization.yaml", KUSTOMIZATION), ("m/a.yaml", "a: [\n")], "reading `m/a.yaml`: line ")]
#[case::kustomization(&[("m/kustomization.yaml", "a: [\n")], "reading `m/kustomization.yaml`: line ")]
#[case::circle(&[("m/kustomization.yaml", "resources: [.]\n")], "a kustomization cannot build on itself, but `m/kust")]
fn manifests_that_the_build_refuses_are_told(#[case] files: &[(&str, &str)], #[case] words: &str) {
    let (key, found) = Site::of("manifests: [m]", files).problem();
    assert_eq!(key, "content.manifests[0]");
    assert!(found.starts_with(words), "{found}");
}

#[rstest]
#[case(&[("m/a.yaml", OBJECT), ("m/b.yaml", ""), ("m/notes.txt", "a: [")])]
#[case(&[("m/kustomization.yaml", KUSTOMIZATION), ("m/a.yaml", OBJECT), ("m/b.yaml", "a: [\n")])]
#[case(&[("m/a/kustomization.yaml", "resources: [../b]\n"), ("m/b/kustomization.yaml", "resources: []\n")])]
fn manifests_that_can_be_built_are_not(#[case] files: &[(&str, &str)]) {
    assert_eq!(Site::of("manifests: [m]", files).problems(), []);
}

const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
const CHARTS: &str = "charts: [{ name: web, namespace: web, chart: web }]";

#[rstest]
#[case::empty("", &[], "`web/Chart.yaml:1`: found no keys, expected `name` and `version`")]
#[case::no_yaml("name: [\n", &[], "reading `web/Chart.yaml`: line ")]
#[case::no_version("name: web\n", &[], "`web/Chart.yaml:1`: the chart has no `version`")]
#[case::library("type: library\n", &[], "`web/Chart.yaml:4`: it is a library, which cannot be installed")]
#[case::kind("type: app\n", &[], "`web/Chart.yaml:4`: found `app`, expected `application` or `library`")]
#[case::need("dependencies:\n- { name: db, version: 1.x }\n", &[("web/charts/x/Chart.yaml", "name: other\n")],
    "`web/Chart.yaml:5`: it needs the chart `db`, which is not in `charts/`")]
#[case::older("", &[("web/Chart.yaml", "name: web\nversion: 1\n"), ("web/requirements.yaml", "dependencies: [{ name: db }]\n")],
    "`web/requirements.yaml:1`: it needs the chart `db`")]
#[case::kubernetes("kubeVersion: \"<1.30.0-0\"\n", &[], "`web/Chart.yaml:4`: it is for Kubernetes `<1.30.0-0`, and the definition has v1.")]
#[case::values("", &[("web/Chart.yaml", CHART), ("web/values.yaml", "- a\n")], "`web/values.yaml:1`: found no keys, expected some")]
fn charts_that_helm_refuses_are_told(#[case] more: &str, #[case] files: &[(&str, &str)], #[case] words: &str) {
    let whole = if more.is_empty() || more.starts_with("name") { more.to_owned() } else { format!("{CHART}{more}") };
    let files: Vec<_> = [("web/Chart.yaml", whole.as_str())].into_iter().chain(files.iter().copied()).collect();
    let (key, found) = Site::of(CHARTS, &files).problem();
    assert_eq!(key, "content.charts[0].chart");
    assert!(found.starts_with(words), "{found}");
}

#[test]
fn charts_and_values_that_helm_takes_are_not() {
    let chart = format!(
        "{CHART}type: application\nkubeVersion: \">= 1.30.0-0\"\n\
         dependencies: [{{ name: db, alias: store }}, {{ name: cache, condition: cache.on }}]\n"
    );
    let content = "charts: [{ name: a, namespace: web, chart: web, values: v.yaml }, { name: b, namespace: web, chart: web.tar.gz }]";
    let values = "# none\n";
    let site =
        Site::of(content, &[("web/Chart.yaml", &chart), ("v.yaml", values), ("web/values.yaml", "a: 1\n---\nb: 2\n")]);
    site.write("web/charts/db-folder/Chart.yaml", b"name: db\nversion: 1.0.0\n");
    site.write("web/charts/cache-1.0.0.tgz", &archive(&[("cache/Chart.yaml", "name: cache\nversion: 1.0.0\n")]));
    let whole = [
        ("web/Chart.yaml", chart.as_str()),
        ("web/charts/db/Chart.yaml", "name: db\n"),
        ("web/charts/cache/Chart.yaml", "name: cache\n"),
    ];
    site.write("web.tar.gz", &archive(&whole));
    assert_eq!(site.problems(), []);
    site.write("web.tar.gz", &archive(&whole[..2]));
    let expected = "`web.tar.gz/Chart.yaml:6`: it needs the chart `cache`, which is not in `charts/`";
    assert_eq!(site.problem(), ("content.charts[1].chart".to_owned(), expected.to_owned()));
    site.write("web.tar.gz", &archive(&[("README.md", "")]));
    assert_eq!(site.problem().1, "`web.tar.gz` holds no folder with a `Chart.yaml`");
    site.write("web.tar.gz", &archive(&whole));
    site.write("v.yaml", b"a: 1\nb: [\n");
    let (key, found) = site.problem();
    assert_eq!(key, "content.charts[0].values");
    assert!(found.starts_with("reading `v.yaml`: line "), "{found}");
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, Path::new(name), text.as_bytes()).expect("appended");
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar.into_inner().expect("a tar")).expect("packed");
    gzip.finish().expect("packed")
}

#[test]
fn recipes_with_a_key_that_is_unknown_are_told_and_others_are_not() {
    let content = "images: [\"docker.io/library/a:1\", { name: \"site.example/b:1\", from: b }]\n  osImages: [{ name: os, from: os }]";
    let (image, os) = ("entrypoint: [a]\n", "packages: [udev]\nconsoles: [tty0]\n");
    let site = Site::of(content, &[("b/image.yaml", image), ("os/os-image.yaml", os)]);
    assert_eq!(site.problems(), []);
    site.write("b/image.yaml", b"entrypoint: [a]\nentripoint: [b]\n");
    site.write("os/os-image.yaml", b"packages: [udev]\nconsoles: [tty0]\npakages: [b]\n");
    let all = site.problems();
    let keys: Vec<&str> = all.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["content.images[1].from", "content.osImages[0].from"]);
    for (problem, words) in
        all.iter().zip([["`b/image.yaml`: line 2", "entripoint"], ["`os/os-image.yaml`: line 3", "pakages"]])
    {
        assert!(words.iter().all(|word| problem.found.contains(word)), "{problem:?}");
    }
}

/// As `foothold lint` shows it: at the place in the definition.
#[test]
fn what_is_wrong_is_shown_where_the_definition_names_it() {
    let site = Site::of("# é\n  manifests: [m, \"n\"]", &[("m/a.yaml", OBJECT), ("n/b.yaml", "kind: Secret\n")]);
    let text = fs_err::read_to_string(site.0.path().join("appliance.yaml")).expect("read");
    let all = Problems { file: "appliance.yaml".into(), text, list: site.problems() };
    insta::assert_snapshot!(render(&all, false));
}
