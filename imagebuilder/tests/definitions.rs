//! Definitions as files: each wrong one with the whole text that its user reads, each right one as it is understood.

use std::path::{Path, PathBuf};

use foothold::cli::SchemaOf;
use foothold::config;
use foothold::problems;
use proptest::prelude::{ProptestConfig, any, prop, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};

fn definitions(folder: &str) -> Vec<(String, PathBuf)> {
    let folder = Path::new("tests/definitions").join(folder);
    let entries = fs_err::read_dir(folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    let name = |file: &Path| file.file_stem().expect("a name").to_string_lossy().into_owned();
    files.into_iter().map(|file| (name(&file), file)).collect()
}

#[test]
fn wrong_definitions_are_explained_to_their_users() {
    let definitions = definitions("wrong");
    assert!(definitions.len() >= 30, "only {} definitions", definitions.len());
    for (name, file) in definitions {
        let problems = config::check_file(&file).expect("it can be read").problems;
        assert!(problems.has_errors(), "{name} is taken as right");
        for problem in &problems.list {
            assert!(
                !problem.found.is_empty() && !problem.expected.is_empty() && !problem.hint.is_empty(),
                "{name}: {problem:?}"
            );
        }
        let text = format!("{}\n\n{}", problems::render(&problems, false), problems::summary(&problems));
        insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "definitions/wrong", omit_expression => true }, {
            insta::assert_snapshot!(name, text);
        });
    }
}

/// `foothold lint` takes each kind of file that there is; what builds and runs them takes its own.
#[test]
fn lint_takes_a_site_alone_and_a_simulation_as_well() {
    let dir = tempfile::tempdir().expect("a folder");
    let lint = |text: &str| {
        let file = dir.path().join("file.yaml");
        fs_err::write(&file, text).expect("written");
        let problems = config::lint(&file).expect("it can be read").problems;
        problems.list.into_iter().map(|problem| problem.found).collect::<Vec<_>>()
    };
    let site = "apiVersion: foothold.dev/v1\nkind: Site\n";
    assert_eq!(lint(&format!("{site}hostname: edge-1\n")), [""; 0]);
    assert_eq!(lint(&format!("{site}hostname: Edge_1.\n")), ["`Edge_1.` is not valid"]);
    assert_eq!(lint(&format!("{site}---\n{site}")), ["this is the second `Site` of the file"]);
    assert_eq!(lint(""), ["the file is empty"]);
    let simulation = "apiVersion: foothold.dev/v1\nkind: Simulation\n";
    assert_eq!(lint(&format!("{simulation}servers: []\n")), [""; 0]);
    assert_eq!(lint(&format!("{simulation}servers: []\nbox: {{}}\n")).len(), 1);
    assert_eq!(lint(&format!("{simulation}---\n{site}")), ["the file has 2 documents"]);
}

/// What is found in a definition with these lines.
fn found_in(lines: &str) -> Vec<String> {
    problems_in(lines).into_iter().map(|problem| problem.found).collect()
}

/// A service is switched on by an empty mapping, unless it asks for a key.
#[test]
fn who_switches_a_service_on_by_a_boolean_is_told_how_it_is_written() {
    for (service, expected) in [
        ("clusters: true", "write `clusters: {}`"),
        ("provisioning: true", "write `provisioning: {}`"),
        ("metrics: yes", "write `metrics: {}`"),
        ("storage: true", "write `storage: {}`"),
        ("storage: false", "write `storage: { ... }` with keys of `share`"),
    ] {
        let problems = problems_in(&format!("services: {{ {service} }}"));
        let hints: Vec<&str> = problems.iter().map(|problem| problem.hint.as_str()).collect();
        assert_eq!(hints, [expected], "{service}");
    }
    let problems = problems_in("sign: true");
    assert!(problems[0].hint.starts_with("write `sign: { ... }` with keys of `key`"), "{problems:?}");
}

/// The problems of a definition with these lines.
fn problems_in(lines: &str) -> Vec<problems::Problem> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("appliance.yaml");
    let head = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: edge, version: 1.0.0 }\n";
    fs_err::write(&file, format!("{head}{lines}\n")).expect("written");
    config::check_file(&file).expect("it can be read").problems.list
}

/// It is looked at like that of a Site.
#[test]
fn the_network_of_servers_is_one_that_can_be() {
    for (address, words) in [
        ("127.0.0.1/24", Some("is a loopback address")),
        ("224.0.0.1/24", Some("is a multicast address")),
        ("172.22.0.0/24", Some("is the address of the subnet itself")),
        ("198.18.0.1/24", Some("is the cluster's own address on every box")),
        ("10.96.0.1/24", Some("lies in `serviceCIDR` 10.96.0.0/12 of the cluster")),
        ("10.244.3.1/24", Some("lies in `podCIDR` 10.244.0.0/16 of the cluster")),
        ("10.0.0.1/8", Some("the box cannot reach the part of 10.0.0.1/8 that is `podCIDR`")),
        ("172.22.0.1/24", None),
    ] {
        let found =
            found_in(&format!("services: {{ provisioning: {{ interface: {{ name: ens4 }}, address: {address} }} }}"));
        match words {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(words) => assert!(found.iter().any(|found| found.contains(words)), "{address}: {found:?}"),
        }
    }
}

/// Releases of Kubernetes for clusters: each is one that can be brought, and there once.
#[test]
fn releases_for_clusters_are_ones_that_can_be_brought() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().display();
    for (versions, words) in [
        ("[ { version: v1.35.8 } ]".to_owned(), None),
        (format!("[ {{ version: v1.36.3, from: directory, path: {at} }}, {{ version: v1.35.8 }} ]"), None),
        ("[ { version: v1.35.1, from: upstream, url: \"https://mirror.example/kubernetes\" } ]".to_owned(), None),
        ("[]".to_owned(), None),
        ("[ { version: v1.35.7 } ]".to_owned(), Some("v1.35.7 is not a release whose modules are pinned")),
        ("[ { version: v1.36.3 } ]".to_owned(), Some("v1.36.3 is not a release whose modules are pinned")),
        ("[ { version: 1.35.8 } ]".to_owned(), Some("`1.35.8` is not valid")),
        ("[ { version: v1.34.9 } ]".to_owned(), Some("not a release that this version of foothold makes clusters of")),
        ("[ { version: v1.36.4, from: directory, path: . } ]".to_owned(), Some("the box's own release")),
        ("[ { version: v1.35.8 }, { version: v1.35.8 } ]".to_owned(), Some("v1.35.8 is there twice")),
        ("[ { version: v1.35.8, from: directory } ]".to_owned(), Some("`from: directory` needs a `path`")),
        ("[ { version: v1.35.8, path: . } ]".to_owned(), Some("`path` means nothing with `from: modules`")),
        ("[ { from: modules } ]".to_owned(), Some("has no `version`")),
        ("[ v1.35.8 ]".to_owned(), Some("")),
    ] {
        let servers = "provisioning: { interface: { name: ens4 }, address: 172.22.0.1/24 }";
        let found = found_in(&format!("services: {{ {servers}, clusters: {{ versions: {versions} }} }}"));
        match words {
            None => assert!(found.is_empty(), "{versions}: {found:?}"),
            Some(words) => assert!(found.len() == 1 && found[0].contains(words), "{versions}: {found:?}"),
        }
    }
}

#[test]
fn a_url_where_a_path_belongs_is_told_as_one() {
    for lines in [
        "content: { manifests: [ \"https://example.org/release.yaml\" ] }",
        "content: { charts: [ { name: web, namespace: web, chart: \"https://example.org/web-1.0.0.tgz\" } ] }",
    ] {
        let found = found_in(lines);
        assert!(found.len() == 1 && found[0].ends_with("` is a URL"), "{found:?}");
    }
}

/// Helm takes 53 characters for the name of a release, and knows its archives by what they begin with.
#[test]
fn a_chart_is_one_that_helm_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let gzip: &[u8] = &[0x1f, 0x8b, 0x08, 0x00];
    for (name, bytes) in [("web.tar.gz", gzip), ("web", gzip), ("web.tgz", gzip), ("plain.tgz", b"no archive")] {
        fs_err::write(folder.path().join(name), bytes).expect("written");
    }
    let long = |letters: usize| "w".repeat(letters);
    for (name, file, words) in [
        (long(53), "web.tgz", None),
        (long(1), "web.tar.gz", None),
        (long(1), "web", None),
        (long(54), "web.tgz", Some("wwww` is not valid")),
        (long(64), "web.tgz", Some("wwww` is not valid")),
        ("Web".to_owned(), "web.tgz", Some("`Web` is not valid")),
        (long(1), "plain.tgz", Some("plain.tgz` is no chart")),
    ] {
        let chart = folder.path().join(file);
        let chart = format!("{{ name: {name}, namespace: web, chart: {} }}", chart.display());
        let problems = problems_in(&format!("content: {{ charts: [ {chart} ] }}"));
        let found: Vec<&str> = problems.iter().map(|problem| problem.found.as_str()).collect();
        match words {
            None => assert!(found.is_empty(), "{name}, {file}: {found:?}"),
            Some(words) => assert!(found.len() == 1 && found[0].contains(words), "{name}, {file}: {found:?}"),
        }
        let expected = "a DNS label (a-z, 0-9 and `-` inside, at most 53)";
        assert!(problems.iter().all(|problem| problem.key != "content.charts[0].name" || problem.expected == expected));
    }
    let chart = format!("{{ name: {}, namespace: web, chart: {} }}", long(64), folder.path().join("web").display());
    assert_eq!(problems_in(&format!("content: {{ charts: [ {chart} ] }}"))[0].hint, "shorten it by 11 characters");
}

#[test]
fn right_definitions_are_understood() {
    for (name, file) in definitions("right") {
        let checked = config::check_file(&file).expect("it can be read");
        assert!(!checked.problems.has_errors(), "{}", checked.problems);
        let appliance = checked.appliance.expect("an appliance");
        let json = serde_json::to_string_pretty(&appliance).expect("it serializes");
        let json = format!("{}\n{json}", checked.problems);
        insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "definitions/right", omit_expression => true }, {
            insta::assert_snapshot!(name, json);
        });
    }
}

/// What is wrong with the files that a definition names, which must have no errors itself.
fn found_in_files(file: &Path) -> Vec<(String, String)> {
    let checked = config::check_file(file).expect("it can be read");
    let appliance = checked.appliance.unwrap_or_else(|| panic!("{}", checked.problems));
    let problems = foothold::content::lint::problems(&appliance, &checked.problems.text);
    problems.into_iter().map(|problem| (problem.key, problem.found)).collect()
}

/// Every chart of `charts/` can be built, but the library that others have by a link.
#[test]
fn files_that_can_be_built_are_taken_before_a_build() {
    for (name, file) in definitions("right") {
        assert_eq!(found_in_files(&file), [], "{name}");
    }
    let charts = fs_err::canonicalize("tests/charts").expect("charts");
    let mut names: Vec<String> = fs_err::read_dir(&charts)
        .expect("charts")
        .map(|entry| entry.expect("a chart").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    let entry = |name: &String| format!("    - {{ name: {name}, namespace: a, chart: {}/{name} }}\n", charts.display());
    let list: String = names.iter().map(entry).collect();
    let head = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: edge, version: 1.0.0 }\n";
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("appliance.yaml");
    fs_err::write(&file, format!("{head}content:\n  charts:\n{list}")).expect("written");
    let library = names.iter().position(|name| name == "common").expect("the library");
    let all = found_in_files(&file);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].0, format!("content.charts[{library}].chart"));
    assert!(all[0].1.ends_with("it is a library, which cannot be installed"), "{all:?}");
}

#[test]
fn the_definitions_that_everybody_starts_from_are_right() {
    for file in ["../images/appliance", "../images/simulation/cluster-appliance.yaml"] {
        let checked = config::check_file(file.as_ref()).expect("it can be read");
        assert!(checked.problems.list.is_empty(), "{}", checked.problems);
    }
}

#[test]
fn the_committed_schemas_are_current() {
    for (file, of) in [("appliance", SchemaOf::Appliance), ("simulation", SchemaOf::Simulation)] {
        let committed = fs_err::read_to_string(format!("../images/{file}.schema.json")).unwrap_or_default();
        assert!(
            committed == foothold::commands::schema::text(of),
            "`foothold schema --of {file} > images/{file}.schema.json` makes it current"
        );
    }
}

/// Pieces that YAML readers stumble over, between pieces of a definition.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "apiVersion: foothold.dev/v1\n",
        "kind: Appliance\n",
        "kind: Site\n",
        "metadata: ",
        "{ name: edge, version: 1.4.0 }\n",
        "kubernetes:\n  ",
        "podCIDR: 10.0.0.0/8\n",
        "outputs: [",
        "{ format: raw, size: ",
        "28GiB",
        "}, ",
        "]\n",
        "boot: { firmware: [] }\n",
        "\n",
        "  ",
        "- ",
        ": ",
        "? ",
        "{",
        "}",
        "[",
        "]",
        "---\n",
        "...\n",
        "&a ",
        "*a ",
        "!!str ",
        "<<: ",
        "|\n  ",
        ">-\n  ",
        "\"",
        "'",
        "#",
        "\t",
        "%YAML 1.2\n",
        "~",
        "yes",
        "010",
        "\u{feff}",
        "é",
        "\u{0}",
        "\r\n",
        "99999999999999999999",
        "/32",
        "1h1h",
    ];
    prop_oneof![8 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => any::<String>(), 1 => Just(" ".repeat(9))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        let checked = config::check("tests/definitions/x.yaml".as_ref(), pieces.concat());
        let _ = problems::render(&checked.problems, false);
        assert!(checked.appliance.is_some() || checked.problems.has_errors(), "silence");
    }

    #[test]
    fn a_right_definition_with_bytes_changed_never_makes_it_panic(at in 0..2000_usize, bytes in any::<[char; 3]>()) {
        let text = include_str!("definitions/right/everything.yaml");
        let mut chars: Vec<char> = text.chars().collect();
        let at = at % chars.len();
        for (place, c) in chars[at..].iter_mut().zip(bytes) {
            *place = c;
        }
        let checked = config::check("tests/definitions/right/x.yaml".as_ref(), chars.into_iter().collect());
        let _ = problems::render(&checked.problems, true);
    }
}
