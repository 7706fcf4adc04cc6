//! What looks like an image where no container stands: images that operators are told of.
//!
//! ```text
//! spec: { image: "quay.io/prometheus/prometheus:v3" }                            a key that says it
//! spec: { driver: { repository: nvcr.io/nvidia, image: driver, version: "1" } }  in parts
//! args: [ "--engine-image", "org/engine:v1", "--pause-image=org/pause:3" ]        behind a flag that says it
//! env: [ { name: HELPER_IMAGE, value: "org/helper:v1" } ]                         as a setting that says it
//! args: [ "--config-reloader=quay.io/org/reloader:v1" ]                          a whole name, wherever it stands
//! data: { pod.yaml: "kind: Pod\n..." }                                            in a text of several lines
//! ```
//! None of these is sure: a definition says which are no images.

use agent_api::image::ImageName;

use super::CONTAINERS;
use super::yaml::{self, Node, Value};

/// Parts of an object that hold no image that somebody pulls.
const NO_PARTS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Schemes before the names of images.
const SCHEMES: [&str; 2] = ["oci://", "docker://"];
/// Endings of files that hold disks: such images are none of containers.
const DISKS: [&str; 6] = [".img", ".iso", ".qcow2", ".raw", ".vhd", ".vmdk"];
/// No name is longer: that of a repository has 255 characters at most, a digest 71.
const LONGEST: usize = 400;

/// What looks like an image, and its line.
pub type Found = (String, usize);

/// All that looks like an image in an object. `found` is given it in its order.
pub fn of_object(object: &Node, found: &mut Vec<Found>) {
    let Value::Mapping(entries) = &object.value else { return };
    // Examples and defaults in schemas are what objects of the kind may say, not what one says.
    if object.get("kind").and_then(Node::text) == Some("CustomResourceDefinition") {
        return;
    }
    for (key, value) in entries.iter().filter(|(key, _)| !NO_PARTS.contains(&key.as_str())) {
        walk(key, value, found);
    }
}

fn walk(key: &str, node: &Node, found: &mut Vec<Found>) {
    match &node.value {
        Value::Scalar(text) => {
            let images = if text.contains('\n') { in_lines(key, text) } else { in_text(key, text) };
            found.extend(images.into_iter().map(|image| (image, node.line)));
        }
        Value::List(items) => in_list(key, items, found),
        Value::Mapping(entries) => {
            found.extend(in_parts(node));
            // `{ name: NAME, value: TEXT }` of an environment says what `NAME: TEXT` would.
            let name = node.get("name").and_then(Node::text).unwrap_or("value");
            for (key, value) in entries {
                walk(if key == "value" { name } else { key }, value, found);
            }
        }
    }
}

fn in_list(key: &str, items: &[Node], found: &mut Vec<Found>) {
    let mut flag = None;
    for item in items {
        // Lists of objects hold objects.
        if item.get("kind").is_some() && item.get("metadata").is_some() {
            of_object(item, found);
            continue;
        }
        let text = item.text().unwrap_or_default();
        // What follows a flag of arguments is its value, unless it is a flag itself.
        walk(flag.take().filter(|_| !text.starts_with('-')).unwrap_or(key), item, found);
        let is_flag = text.starts_with('-') && !text.contains('=');
        flag = Some(name_of_flag(text)).filter(|name| is_flag && is_of_images(name));
    }
}

fn name_of_flag(text: &str) -> &str {
    text.trim_start_matches('-')
}

/// The images that a text names: by its key, or because it can hardly be anything else.
fn in_text(key: &str, text: &str) -> Vec<String> {
    let whole = bare(text);
    // `--flag=IMAGE` of arguments, `NAME=IMAGE` of settings.
    let (name, value) = match whole.split_once('=') {
        Some((name, value)) => (name_of_flag(name.trim()), bare(value)),
        None => (key, whole),
    };
    for (key, text) in [(key, whole), (name, value)] {
        let several = key.ends_with(['s', 'S']);
        let images = text.split(|c: char| several && (c.is_whitespace() || c == ',')).filter(|_| is_of_images(key));
        let images: Vec<String> = images.filter(|image| names_more_than_a_word(image)).map(str::to_owned).collect();
        if !images.is_empty() {
            return images;
        }
    }
    [whole, value].into_iter().find(|text| is_whole(text)).map(str::to_owned).into_iter().collect()
}

/// A text without quotes and scheme.
fn bare(text: &str) -> &str {
    let text = text.trim().trim_matches(['"', '\'']);
    SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text)
}

/// The images that a text of several lines names: objects in YAML, or lines of settings.
fn in_lines(key: &str, text: &str) -> Vec<String> {
    // Few texts are objects, and reading all as YAML would take long.
    let may_be_objects = text.contains("kind") || CONTAINERS.iter().any(|key| text.contains(key));
    let documents = if may_be_objects { yaml::documents(text).unwrap_or_default() } else { Vec::new() };
    let mut images = Vec::new();
    if documents.iter().any(|document| document.get("kind").is_some() || has_containers(document)) {
        let (mut sure, mut looks) = (Vec::new(), Vec::new());
        for document in &documents {
            super::walk(document, super::NAMELESS, &mut sure);
            of_object(document, &mut looks);
        }
        images.extend(sure.into_iter().map(|named| named.image));
        images.extend(looks.into_iter().map(|(image, _)| image));
    } else {
        for line in text.lines().map(|line| line.trim().trim_start_matches("- ").trim_end_matches([',', ';'])) {
            if line.starts_with(['#', ';']) || line.starts_with("//") {
                continue;
            }
            let (key, value) = line.split_once(": ").unwrap_or((key, line));
            images.extend(in_text(key.trim_matches(['"', '\'']), value));
        }
    }
    images.sort();
    images.dedup();
    images
}

/// Whether containers stand somewhere in a document.
fn has_containers(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(_) => false,
        Value::List(items) => items.iter().any(has_containers),
        Value::Mapping(entries) => entries.iter().any(|(key, value)| {
            (CONTAINERS.contains(&key.as_str()) && matches!(value.value, Value::List(_))) || has_containers(value)
        }),
    }
}

/// The image that `registry`, `repository`, `image` and `tag`, `version` or `digest` come to.
fn in_parts(node: &Node) -> Option<Found> {
    let text = |key: &str| node.get(key).and_then(Node::text).map(str::trim).filter(|text| !text.is_empty());
    let repository = node.get("repository")?;
    let mut name = text("repository").filter(|text| !text.contains("://"))?.to_owned();
    // A chart, not an image.
    if node.get("chart").is_some() {
        return None;
    }
    if let Some(image) = text("image") {
        if is_whole(image) {
            return None;
        }
        name = format!("{name}/{image}");
    }
    if let Some(registry) = text("registry").or_else(|| text("imageRegistry")) {
        name = format!("{registry}/{name}");
    }
    let version = text("tag").or_else(|| text("version")).or_else(|| text("imageTag"));
    let digest = text("digest").or_else(|| version.filter(|version| version.starts_with("sha256:")));
    let name = match (digest, version) {
        (Some(digest), _) => format!("{name}@{digest}"),
        (None, Some(version)) => format!("{name}:{version}"),
        // The operator decides: nothing here tells which it takes.
        (None, None) => return None,
    };
    name.parse::<ImageName>().is_ok().then_some((name, repository.line))
}

/// Whether a key says that its value is an image, or several: `image`, `baseImage`, `imageName`, `docker_image`,
/// `engine-image`, `HELPER_IMAGE`, `RELATED_IMAGE_PROXY`, and all of these with an `s`.
fn is_of_images(key: &str) -> bool {
    let one = key.strip_suffix(['s', 'S']).unwrap_or(key);
    let ends = ["Image", "_image", "-image", "_IMAGE"].iter().any(|end| one.ends_with(end));
    ends || matches!(one, "image" | "IMAGE" | "imageName" | "image_name") || key.starts_with("RELATED_IMAGE_")
}

fn may_be_a_name(text: &str) -> bool {
    text.len() <= LONGEST && !text.contains("://") && text.parse::<ImageName>().is_ok()
}

/// Whether a text under a key for images is one: a single word may as well be a choice, and a path that of a disk's file.
fn names_more_than_a_word(text: &str) -> bool {
    let is_file = DISKS.iter().any(|ending| text.ends_with(ending));
    text.contains(['/', ':', '@']) && !is_file && may_be_a_name(text)
}

/// Whether a text is a registry, a repository, and a tag or a digest.
fn is_whole(text: &str) -> bool {
    let Some((host, path)) = text.split_once('/') else { return false };
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let has_letter = name.bytes().any(|b| b.is_ascii_alphabetic());
    let is_host =
        port.is_none_or(is_port) && (name == "localhost" || port.is_some() || (name.contains('.') && has_letter));
    let last = path.rsplit('/').next().unwrap_or_default();
    is_host && last.contains([':', '@']) && may_be_a_name(text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::of_object;
    use crate::content::closure::yaml;

    fn found(text: &str) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for document in yaml::documents(text).expect("YAML") {
            of_object(&document, &mut found);
        }
        found
    }

    #[rstest]
    #[case("spec: { image: quay.io/prometheus/prometheus:v3 }", "quay.io/prometheus/prometheus:v3")]
    #[case("spec: { image: prom/prometheus }", "prom/prometheus")]
    #[case("spec: { storage: { baseImage: \"minio:2025\" } }", "minio:2025")]
    #[case(
        "spec: { driver: { repository: nvcr.io/nvidia, image: driver, version: \"550.1\" } }",
        "nvcr.io/nvidia/driver:550.1"
    )]
    #[case("spec: { image: { registry: quay.io, repository: org/app, tag: v1 } }", "quay.io/org/app:v1")]
    #[case(
        "spec: { image: { repository: org/app, digest: \"sha256:1111111111111111111111111111111111111111111111111111111111111111\" } }",
        "org/app@sha256:1111111111111111111111111111111111111111111111111111111111111111"
    )]
    #[case("spec: { args: [\"--reloader=quay.io/org/reloader:v1\"] }", "quay.io/org/reloader:v1")]
    #[case("spec: { env: [{ name: RELATED_IMAGE_X, value: \"localhost:5000/x:1\" }] }", "localhost:5000/x:1")]
    #[case("data: { helper: \"registry.example/velero/helper:v1.0.0\" }", "registry.example/velero/helper:v1.0.0")]
    #[case("spec: { url: \"oci://ghcr.io/org/os:1\" }", "ghcr.io/org/os:1")]
    #[case("spec: { imageName: \"postgres:17\" }", "postgres:17")]
    #[case("spec: { docker_image: \"org/spilo:3\" }", "org/spilo:3")]
    #[case("spec: { images: [\"org/app:1\"] }", "org/app:1")]
    #[case("spec: { args: [\"--engine-image\", \"longhornio/engine:v1.9.0\"] }", "longhornio/engine:v1.9.0")]
    #[case("spec: { command: [run, --image=rancher/mirrored-pause:3.6] }", "rancher/mirrored-pause:3.6")]
    #[case("spec: { env: [{ name: CSI_ATTACHER_IMAGE, value: \"longhornio/csi:v4\" }] }", "longhornio/csi:v4")]
    #[case("spec: { env: [{ name: RELATED_IMAGE_PROXY, value: org/proxy }] }", "org/proxy")]
    #[case("data: { AGENT_IMAGE: \"org/agent:1\" }", "org/agent:1")]
    #[case("data: { settings: \"# all\\nHELPER_IMAGE=org/helper:1\\nCOLOUR=red\\n\" }", "org/helper:1")]
    #[case("data: { settings: \"a = 1\\nimage = 'org/helper:1'\\n\" }", "org/helper:1")]
    #[case("data: { settings: \"a: 1\\nhelper-image: org/helper:1\\n\" }", "org/helper:1")]
    #[case("data: { list: \"quay.io/org/app:1\\nred\\n\" }", "quay.io/org/app:1")]
    #[case("data: { pod.yaml: \"kind: Pod\\nspec:\\n  containers:\\n  - image: busybox\\n\" }", "busybox")]
    #[case("data: { spec.yaml: \"initContainers:\\n- image: org/helper:1\\n\" }", "org/helper:1")]
    #[case("data: { x.yaml: \"kind: Prometheus\\nspec:\\n  image: org/app:1\\n\" }", "org/app:1")]
    #[case(
        "spec: { driver: { repository: nvcr.io/nvidia, image: driver, version: 550 } }",
        "nvcr.io/nvidia/driver:550"
    )]
    fn images_that_operators_are_told_of_are_found(#[case] text: &str, #[case] image: &str) {
        assert_eq!(found(text), [(image.to_owned(), 1)]);
    }

    #[test]
    fn a_setting_for_several_images_names_each_of_them() {
        for text in [
            "spec: { env: [{ name: EXTRA_IMAGES, value: \"org/a:1, org/b:2 org/c\" }] }",
            "spec: { args: [\"--extra-images=org/a:1,org/b:2,org/c\"] }",
            "data: { images: \"org/a:1\\norg/b:2\\norg/c\\n\" }",
        ] {
            assert_eq!(found(text), ["org/a:1", "org/b:2", "org/c"].map(|image| (image.to_owned(), 1)), "{text}");
        }
    }

    #[rstest]
    #[case("spec: { image: nginx }")]
    #[case("spec: { images: [nginx] }")]
    #[case("spec: { images: [{ name: web, newTag: \"2\" }] }")]
    #[case("spec: { image: { url: \"http://172.22.0.1:6180/images/node.qcow2\" } }")]
    #[case("spec: { address: \"redfish+https://172.22.0.201:443/redfish/v1\" }")]
    #[case("spec: { endpoint: \"prometheus.monitoring.svc:9090\" }")]
    #[case("spec: { key: topology.kubernetes.io/zone }")]
    #[case("spec: { repository: \"https://charts.example.org\", version: \"1\" }")]
    #[case("spec: { repository: stable, chart: web, version: \"1\" }")]
    #[case("spec: { driver: { repository: nvcr.io/nvidia, image: driver } }")]
    #[case("spec: { rule: \"{{ $labels.instance }}/x.y:1\" }")]
    #[case("metadata: { annotations: { x: \"quay.io/org/app:1\" } }")]
    #[case("status: { image: \"quay.io/org/app:1\" }")]
    #[case("spec: { command: [sh, -c, \"run quay.io/org/app:1\"] }")]
    #[case("spec: { args: [\"--image\", nginx, \"--image-pull-policy\", \"org/a:1\"] }")]
    #[case("spec: { args: [\"--no-image\", \"--path=org/a:1\", \"--of=an-image\", org/b:1] }")]
    #[case("spec: { args: [\"--disk-image=images/node.qcow2\", \"--image=$(IMAGE)\"] }")]
    #[case("spec: { env: [{ name: OWNER, value: org/app:1 }, { name: PULL_IMAGE, value: always }] }")]
    #[case("spec: { env: [{ name: X_IMAGE, valueFrom: { fieldRef: { fieldPath: a/b } } }] }")]
    #[case("data: { settings: \"# HELPER_IMAGE=org/helper:1\\npath=org/app\\n\" }")]
    #[case("data: { notes: \"The image is quay.io/org/app:1\\nand others\\n\" }")]
    #[case("data: { rules.yaml: \"kind: x\\nowner: org/app\\n\" }")]
    #[case("data: { crd: \"kind: CustomResourceDefinition\\nspec: { image: org/app:1 }\\n\" }")]
    #[case("spec: { role: \"arn:aws:iam::1:role/x:y\", version: 1.2.3/4:5 }")]
    #[case("kind: CustomResourceDefinition\nspec: { default: { image: \"quay.io/org/app:1\" } }")]
    fn what_is_something_else_is_not(#[case] text: &str) {
        assert_eq!(found(text), []);
    }
}
