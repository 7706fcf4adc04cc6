use std::path::Path;

use agent_api::release::{Digest, Image, Release};
use serde_json::{Value, json};

use super::{Chart, Part, Parts, Printed, choose, images};

fn printed(name: &str) -> Printed {
    let definition = |name: &str| json!({"kind": "CustomResourceDefinition", "metadata": {"name": name}, "spec": {"text": "a {{ b }}"}});
    let (definitions, objects) = match name {
        "baremetalhost" => {
            (vec![definition("baremetalhosts"), definition("others")], vec![json!({"kind": "Deployment"})])
        }
        "bpa" => (vec![definition("baremetalhosts"), definition("provisionings")], vec![json!({"kind": "Deployment"})]),
        "node" => (Vec::new(), vec![json!({"kind": "Secret"})]),
        _ => (Vec::new(), Vec::new()),
    };
    Printed { name: name.to_owned(), images: vec![format!("foothold.dev/{name}:1")], definitions, objects }
}

fn all() -> Vec<Printed> {
    ["baremetalhost", "bpa", "registry", "node"].map(printed).to_vec()
}

fn chosen(wanted: &[Part]) -> Parts {
    choose(all(), wanted, Path::new("a.yaml")).expect("parts")
}

fn chart(wanted: &[Part]) -> Chart {
    Chart::of(&Release { version: "1.0.0".to_owned(), ..Release::default() }, &chosen(wanted)).expect("a chart")
}

#[test]
fn parts_that_a_definition_lacks_are_named_with_what_brings_them() {
    let error = choose(all(), &[Part::Bpa, Part::Sip], Path::new("a.yaml")).expect_err("no SIP").to_string();
    assert!(error.contains("`a.yaml` declares no `sip`") && error.contains("services.sip"), "{error}");
    let error = choose(Vec::new(), &[], Path::new("a.yaml")).expect_err("nothing").to_string();
    assert!(error.contains("nothing that could be exported"), "{error}");
    assert_eq!(chosen(&[]).names().collect::<Vec<_>>(), ["baremetalhost", "bpa", "registry"]);
    assert_eq!(chosen(&[Part::Registry, Part::Bpa]).names().collect::<Vec<_>>(), ["bpa", "registry"]);
}

#[test]
fn only_parts_that_run_on_the_node_bring_it() {
    assert!(chosen(&[Part::Registry]).on_node() && !chosen(&[Part::Bpa]).on_node());
    let files = chart(&[Part::Bpa]);
    assert!(!files.files().contains_key("templates/node.yaml") && !files.values().contains("network:"));
    assert!(chart(&[]).files().contains_key("templates/node.yaml"));
}

#[test]
fn a_kind_is_there_once_and_wherever_a_part_needs_it_and_its_text_is_no_template() {
    let files = chart(&[]).files().clone();
    let text = &files["templates/definitions.yaml"];
    assert_eq!(text.matches("\"name\": \"baremetalhosts\"").count(), 1, "{text}");
    let both = "{{- if or (index .Values.parts `baremetalhost`) (index .Values.parts `bpa`) }}";
    assert!(text.contains(both) && text.contains("{{- if or (index .Values.parts `bpa`) }}"), "{text}");
    assert_eq!(text.matches("a {{ `{{` }} b }}").count(), 3, "{text}");
    assert_eq!(text.matches("\"helm.sh/resource-policy\": \"keep\"").count(), 3, "{text}");
}

#[test]
fn values_name_every_part_and_nothing_else_is_taken() {
    let files = chart(&[]).files().clone();
    let values: Value = serde_saphyr::from_str(&files["values.yaml"]).expect("YAML");
    let schema: Value = serde_json::from_str(&files["values.schema.json"]).expect("JSON");
    let known = schema["properties"].as_object().expect("keys");
    for (key, value) in values.as_object().expect("keys") {
        assert!(known.contains_key(key), "{key}");
        for inner in value.as_object().into_iter().flatten().map(|(inner, _)| inner) {
            assert!(known[key]["properties"][inner].is_object(), "{key}.{inner}");
        }
    }
    assert_eq!(values["parts"], json!({"baremetalhost": true, "bpa": true, "registry": true}));
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn an_image_that_the_release_lacks_is_named() {
    let image = |reference: &str| Image {
        reference: reference.to_owned(),
        index: None,
        inner: Vec::new(),
        manifest: Digest::of(reference),
        blobs: Vec::new(),
    };
    let mut release = Release { images: vec![image("foothold.dev/bpa:1")], ..Release::default() };
    let parts = chosen(&[Part::Bpa, Part::Registry]);
    let error = images(&release, &parts).expect_err("two are missing").to_string();
    assert!(error.contains("foothold.dev/node:1"), "{error}");
    release.images.extend(["foothold.dev/node:1", "foothold.dev/registry:1"].map(image));
    let found: Vec<&str> = images(&release, &parts).expect("all").iter().map(|image| &*image.reference).collect();
    assert_eq!(found, ["foothold.dev/bpa:1", "foothold.dev/node:1", "foothold.dev/registry:1"]);
}
