use agent_api::release::{Digest, Image};
use rstest::rstest;

use super::{Known, Named, complaint, is_none, named, unmet};

fn images(text: &str) -> Vec<String> {
    named(text).expect("YAML").into_iter().map(|named| named.image).collect()
}

const POD: &str = "\
initContainers: [{ name: i, image: init }]
containers:
- { name: a, image: one }
- { name: b, image: \"two:2\" }
ephemeralContainers: [{ name: e, image: late }]
volumes:
- { name: v, image: { reference: files, pullPolicy: Never } }
- { name: w, configMap: { name: image } }
";
const OF_POD: [&str; 5] = ["init", "one", "two:2", "late", "files"];

fn indented(text: &str, by: usize) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("{}{line}", " ".repeat(by))).collect();
    lines.join("\n")
}

#[rstest]
#[case::pod("apiVersion: v1\nkind: Pod\nmetadata: { name: p }\nspec:\n", 2)]
#[case::deployment("kind: Deployment\nmetadata: { name: p }\nspec:\n  template:\n    spec:\n", 6)]
#[case::cron_job(
    "kind: CronJob\nmetadata: { name: p }\nspec:\n  jobTemplate:\n    spec:\n      template:\n        spec:\n",
    10
)]
#[case::nobody_knows("kind: Thing\nmetadata: { name: p }\nspec:\n  parts:\n  - deep:\n      podTemplate:\n", 8)]
#[case::pod_template("kind: PodTemplate\nmetadata: { name: p }\ntemplate:\n  spec:\n", 4)]
fn images_are_found_in_every_shape_that_holds_containers(#[case] head: &str, #[case] by: usize) {
    assert_eq!(images(&format!("{head}{}", indented(POD, by))), OF_POD);
}

#[test]
fn what_only_looks_like_an_image_is_none() {
    assert_eq!(
        images(
            "kind: ConfigMap\nmetadata: { name: c }\ndata:\n  image: nginx\n  pod: |\n    containers: [a]\n    b: c\n"
        ),
        [""; 0]
    );
    assert_eq!(images("kind: Thing\nmetadata: { name: c }\nspec: { containers: 3, image: nginx }\n"), [""; 0]);
    assert_eq!(images("kind: Pod\nspec: { containers: [{ name: a }, { name: b, image: \"\" }] }\n"), [""; 0]);
    assert_eq!(images(""), [""; 0]);
}

#[test]
fn each_image_is_told_with_its_object_and_line() {
    let text = "kind: List\nitems:\n- kind: Pod\n  metadata: { name: a, namespace: n }\n  spec:\n    containers:\n    - name: x\n      image: one\n\
                - { kind: Pod, metadata: { generateName: b- }, spec: { containers: [{ image: two }] } }\n---\n{\"kind\": \"Pod\", \"spec\": {\"containers\": [\n{\"image\": \"three\"}]}}\n";
    let of = |image: &str, object: &str, line| Named { image: image.into(), object: object.into(), line, sure: true };
    assert_eq!(
        named(text).expect("YAML"),
        [of("one", "Pod n/a", 8), of("two", "Pod b-", 9), of("three", "an object without a name", 12)]
    );
    let error = named("a: [1\nb: 2\n").expect_err("no YAML");
    assert!(error.to_string().contains("this is not YAML"), "{error}");
}

fn digest(digit: char) -> Digest {
    Digest::from_hex(&digit.to_string().repeat(64)).expect("a digest")
}

fn known() -> Known {
    let image = |reference: &str, index, manifest| Image {
        reference: reference.into(),
        index,
        inner: Vec::new(),
        manifest: digest(manifest),
        blobs: Vec::new(),
    };
    Known::of(&[
        image("docker.io/library/nginx:1.29", Some(digest('1')), '2'),
        image(&format!("quay.io/org/app@{}", digest('3')), None, '3'),
        image("registry.k8s.io/pause:3.10.2", None, '4'),
    ])
}

#[rstest]
#[case("nginx:1.29", true)]
#[case("library/nginx:1.29", true)]
#[case("docker.io/nginx:1.29", true)]
#[case("index.docker.io/library/nginx:1.29", true)]
#[case("registry.k8s.io/pause:3.10.2", true)]
#[case("nginx", false)]
#[case("nginx:1.30", false)]
#[case("quay.io/library/nginx:1.29", false)]
#[case("pause:3.10.2", false)]
#[case("{{ .Values.image }}", false)]
fn a_name_is_served_when_a_runtime_would_read_it_as_that_of_an_image(#[case] name: &str, #[case] served: bool) {
    assert_eq!(known().holds(name), served);
}

#[rstest]
#[case("nginx", '1', true)]
#[case("nginx", '2', true)]
#[case("nginx:9.9", '2', true)]
#[case("nginx", '3', false)]
#[case("quay.io/org/app", '3', true)]
#[case("quay.io/org/other", '3', false)]
fn a_digest_decides_alone(#[case] name: &str, #[case] digit: char, #[case] served: bool) {
    assert_eq!(known().holds(&format!("{name}@{}", digest(digit))), served);
}

#[test]
fn what_is_missing_is_told_with_what_to_add() {
    let text = "kind: Deployment\nmetadata: { name: web, namespace: shop }\nspec:\n  template:\n    spec:\n      containers:\n      - image: nginx\n      - image: nginx:1.29\n";
    let error = complaint(unmet("manifests/01-web.yaml", text, &known()).expect("YAML")).expect("one is missing");
    assert_eq!(
        error.to_string(),
        "an image is named by objects and not in the release:\n  `nginx` of Deployment shop/web (manifests/01-web.yaml:7)\n\
         hint: add to the definition: `content: { images: [\"docker.io/library/nginx:latest\"] }`, or give up the check: \
         `content: { closure: off }`"
    );
    assert!(complaint(Vec::new()).is_none());
}

#[test]
fn what_looks_like_an_image_is_told_apart_and_can_be_said_to_be_none() {
    let text = "kind: Prometheus\nmetadata: { name: p, namespace: m }\nspec:\n  image: quay.io/prometheus/prometheus:v3\n  \
                containers: [{ image: \"two:2\" }]\n---\nkind: List\nitems:\n- kind: ConfigMap\n  metadata: { name: c }\n  \
                data: { helper: \"quay.io/org/app:1\" }\n";
    let all = named(text).expect("YAML");
    let told: Vec<_> = all.iter().map(|one| (one.image.as_str(), one.object.as_str(), one.sure)).collect();
    let expected = [
        ("two:2", "Prometheus m/p", true),
        ("quay.io/prometheus/prometheus:v3", "Prometheus m/p", false),
        ("quay.io/org/app:1", "ConfigMap c", false),
    ];
    assert_eq!(told, expected);
    let error = complaint(unmet("x.yaml", text, &known()).expect("YAML")).expect("three are missing").to_string();
    for words in [
        "an image is named by objects and not in the release:\n  `two:2` of Prometheus m/p (x.yaml:5)",
        "2 texts look like an image that is not in the release:\n  `quay.io/org/app:1` of ConfigMap c",
        "`content: { notImages: [\"quay.io/org/app:1\", \"quay.io/prometheus/prometheus:v3\"] }`",
    ] {
        assert!(error.contains(words), "{error}");
    }
}

#[rstest]
#[case("quay.io/org/app:1", true)]
#[case("quay.io/org/*", true)]
#[case("*/app:*", true)]
#[case("*", true)]
#[case("quay.io/*:1", true)]
#[case("quay.io/org/app", false)]
#[case("*/app", false)]
#[case("ghcr.io/*", false)]
#[case("", false)]
fn a_pattern_says_what_is_no_image(#[case] pattern: &str, #[case] fits: bool) {
    assert_eq!(is_none("quay.io/org/app:1", &[pattern.to_owned()]), fits);
}
