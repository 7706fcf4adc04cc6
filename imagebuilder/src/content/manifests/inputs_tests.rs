use std::path::{Path, PathBuf};

use super::{Inputs, Origin, Part, Source, label};
use crate::config::{Chart, ChartOrigin, Content};
use crate::store::Cache;

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs_err::write(path, text).expect("written");
}

fn sources(dir: &Path, content: &Content) -> anyhow::Result<Vec<Source>> {
    let cache = Cache::open(&dir.join(".cache")).expect("a cache");
    let charts = std::collections::BTreeMap::new();
    Inputs { content, directory: dir, charts: Some(&charts), cache: &cache }.sources()
}

fn only(dir: &Path, manifests: &str) -> anyhow::Result<Source> {
    let content = Content { manifests: vec![dir.join(manifests)], ..Content::default() };
    Ok(sources(dir, &content)?.remove(0))
}

/// Names of the parts; those of kustomizations end with `/`.
fn names(source: &Source) -> Vec<String> {
    let Origin::Manifests(parts) = &source.origin else { panic!("manifests") };
    let name = |part: &Part| match part {
        Part::File(name, _) => name.clone(),
        Part::Kustomization(name, _) => format!("{name}/"),
    };
    parts.iter().map(name).collect()
}

fn link(target: &str, at: PathBuf) {
    fs_err::os::unix::fs::symlink(target, at).expect("linked");
}

#[test]
fn names_become_labels() {
    for (text, expected) in [("10_Base App", "10-base-app"), ("web", "web"), ("__", "objects"), ("é-a", "a")] {
        assert_eq!(label(text), expected);
    }
}

#[test]
fn the_digest_follows_every_file_that_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "base/kustomization.yaml", "resources: [a.yaml]\n");
    write(dir.path(), "base/a.yaml", "a: 1\n");
    write(dir.path(), "site/kustomization.yaml", "resources:\n- ../base\n");
    write(dir.path(), "site/unused.txt", "x");
    let digest = || only(dir.path(), "site").expect("a source").digest;
    let before = digest();
    assert_eq!(digest(), before);
    write(dir.path(), "base/a.yaml", "a: 2\n");
    assert_ne!(digest(), before, "the base is read, too");
}

#[test]
fn a_folder_is_taken_in_the_order_of_its_names() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["b.yml", "a.json", "sub/c.yaml", "README.md"] {
        write(dir.path(), &format!("m/{name}"), "");
    }
    let source = only(dir.path(), "m").expect("a source");
    assert_eq!(names(&source), ["m/a.json", "m/b.yml", "m/sub/c.yaml"]);
    assert_eq!((source.title.as_str(), source.name.as_str()), ("manifests `m`", "m"));
}

#[test]
fn what_version_control_and_editors_leave_is_not_read() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["a.yaml", ".git/config.yaml", ".github/workflows/ci.yaml", ".a.yaml.swp", ".b.yaml", "sub/.idea/x.yml"]
    {
        write(dir.path(), &format!("m/{name}"), "");
    }
    link("user@host.4711:1", dir.path().join("m/.#a.yaml"));
    assert_eq!(names(&only(dir.path(), "m").expect("a source")), ["m/a.yaml"]);
    link("../gone", dir.path().join("m/notes.txt"));
    assert_eq!(names(&only(dir.path(), "m").expect("nobody reads notes")), ["m/a.yaml"]);
    for folder in ["m/base", "m/v1.2"] {
        link("../gone", dir.path().join(folder));
        let error = format!("{:#}", only(dir.path(), "m").expect_err("it may be a folder"));
        assert!(error.contains(&format!("{folder}` is a link to `../gone`, which is not there")), "{error}");
        fs_err::remove_file(dir.path().join(folder)).expect("removed");
    }
    link("../gone.yaml", dir.path().join("m/z.yaml"));
    let error = format!("{:#}", only(dir.path(), "m").expect_err("refused"));
    assert!(error.contains("m/z.yaml` is a link to `../gone.yaml`, which is not there"), "{error}");
    fs_err::remove_file(dir.path().join("m/z.yaml")).expect("removed");
    link("..", dir.path().join("m/round"));
    let error = format!("{:#}", only(dir.path(), "m").expect_err("refused"));
    assert!(error.contains("in which it lies itself"), "{error}");
}

#[test]
fn a_kustomization_below_a_folder_is_rendered_where_it_stands() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "m/a.yaml", "");
    write(dir.path(), "m/base/kustomization.yaml", "resources: [x.yaml]\n");
    write(dir.path(), "m/base/x.yaml", "");
    write(dir.path(), "m/component/kustomization.yaml", "kind: Component\n");
    write(dir.path(), "m/overlay/site/kustomization.yml", "resources: [../../base]\ncomponents: [../../component]\n");
    write(dir.path(), "m/overlay/site/patch.yaml", "");
    write(dir.path(), "m/z.yaml", "");
    assert_eq!(names(&only(dir.path(), "m").expect("a source")), ["m/a.yaml", "m/overlay/site/", "m/z.yaml"]);
    let file = only(dir.path(), "m/overlay/site/kustomization.yml").expect("a source");
    assert_eq!(names(&file), ["m/overlay/site/kustomization.yml/"]);
}

#[test]
fn what_a_kustomization_does_not_name_may_lead_nowhere() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "site/kustomization.yaml", "resources: [a.yaml]\n");
    write(dir.path(), "site/a.yaml", "");
    for (target, name) in [("gone", "notes.txt"), ("gone.yaml", "b.yaml"), ("..", "round")] {
        link(target, dir.path().join("site").join(name));
    }
    assert_eq!(names(&only(dir.path(), "site").expect("a source")), ["site/"]);
    write(dir.path(), "site/kustomization.yaml", "resources: [a.yaml, b.yaml]\n");
    let error = format!("{:#}", only(dir.path(), "site").expect_err("it is named"));
    assert!(error.contains("kustomization.yaml:1`: there is no `b.yaml`"), "{error}");
}

#[test]
fn no_kustomization_of_a_folder_is_left_out_without_a_word() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = || format!("{:#}", only(dir.path(), "m").expect_err("refused"));
    write(dir.path(), "m/notes.txt", "");
    assert!(refused().contains("manifests `m`: it holds no file that ends with `.yaml`"), "{}", refused());
    write(dir.path(), "m/part/kustomization.yaml", "kind: Component\nresources: [../../base]\n");
    write(dir.path(), "base/kustomization.yaml", "resources: []\n");
    assert!(refused().contains("it holds only components (`kind: Component`)"), "{}", refused());
    // What only a component builds on, that nobody uses, is there for itself.
    write(dir.path(), "m/part/kustomization.yaml", "kind: Component\nresources: [../own]\n");
    write(dir.path(), "m/own/kustomization.yaml", "resources: [x.yaml]\n");
    write(dir.path(), "m/own/x.yaml", "");
    assert_eq!(names(&only(dir.path(), "m").expect("a source")), ["m/own/"]);
    write(dir.path(), "m/site/kustomization.yaml", "components: [../part]\n");
    assert_eq!(names(&only(dir.path(), "m").expect("a source")), ["m/site/"]);
    write(dir.path(), "m/own/kustomization.yaml", "resources: [../site]\n");
    let error = refused();
    for words in ["m/own/kustomization.yaml:1` names `../site`", "m/site/kustomization.yaml:1` names `../part`"] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn links_of_a_chart_are_followed_wherever_they_lead() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "web/Chart.yaml", "name: web\n");
    write(dir.path(), "common/Chart.yaml", "name: common\n");
    fs_err::create_dir(dir.path().join("web/charts")).expect("made");
    link("../../common", dir.path().join("web/charts/common"));
    link("nobody@nowhere.1", dir.path().join("web/.#Chart.yaml"));
    let chart = Chart {
        name: "web".parse().expect("a name"),
        namespace: "web".parse().expect("a name"),
        chart: ChartOrigin::Path(dir.path().join("web")),
        values: None,
    };
    let content = Content { charts: vec![chart], ..Content::default() };
    let digest = || sources(dir.path(), &content).expect("sources").remove(0);
    let before = digest();
    let Origin::Chart(super::ChartInput { from: super::ChartFiles::Directory(files), .. }) = &before.origin else {
        panic!("a chart")
    };
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Chart.yaml", "charts/common/Chart.yaml"]);
    write(dir.path(), "common/Chart.yaml", "name: other\n");
    assert_ne!(digest().digest, before.digest);
}

#[test]
fn a_chart_of_a_registry_is_that_of_the_lock() {
    let dir = tempfile::tempdir().expect("a folder");
    let chart = Chart {
        name: "web".parse().expect("a name"),
        namespace: "web".parse().expect("a name"),
        chart: ChartOrigin::Registry("registry.example/charts/web:1.0.0".parse().expect("a name")),
        values: None,
    };
    let content = Content { charts: vec![chart], ..Content::default() };
    let error = sources(dir.path(), &content).expect_err("not locked").to_string();
    assert!(error.starts_with("the lock does not name the chart `oci://registry.example/charts/web:1.0.0`"), "{error}");
}
