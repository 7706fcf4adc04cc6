//! What looks like an image where no container stands: images that operators are told of.
//!
//! ```text
//! spec: { image: "quay.io/prometheus/prometheus:v3" }                            a key that says it
//! spec: { driver: { repository: nvcr.io/nvidia, image: driver, version: "1" } }  in parts
//! args: [ "--config-reloader=quay.io/org/reloader:v1" ]                          a whole name, wherever it stands
//! ```
//! None of these is sure: a definition says which are no images.

use agent_api::image::ImageName;

use super::yaml::{Node, Value};

/// Parts of an object that hold no image that somebody pulls.
const NO_PARTS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Schemes before the names of images.
const SCHEMES: [&str; 2] = ["oci://", "docker://"];
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
        Value::Scalar(text) => found.extend(in_text(key, text).map(|image| (image, node.line))),
        Value::List(items) => items.iter().for_each(|item| {
            // Lists of objects hold objects.
            if item.get("kind").is_some() && item.get("metadata").is_some() {
                of_object(item, found);
            } else {
                walk(key, item, found);
            }
        }),
        Value::Mapping(entries) => {
            found.extend(in_parts(node));
            for (key, value) in entries {
                walk(key, value, found);
            }
        }
    }
}

/// The image that a text names: by its key, or because it can hardly be anything else.
fn in_text(key: &str, text: &str) -> Option<String> {
    let bare = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    if is_of_images(key) && names_more_than_a_word(bare) {
        return Some(bare.to_owned());
    }
    // `--flag=IMAGE` of arguments, `NAME=IMAGE` of settings.
    let value = bare.split_once('=').map_or(bare, |(_, value)| value);
    [bare, value].into_iter().find(|text| is_whole(text)).map(str::to_owned)
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

/// Whether a key says that its value is an image: `image`, `baseImage`, `imageName`, `docker_image`, `images`.
fn is_of_images(key: &str) -> bool {
    matches!(key, "image" | "images" | "imageName" | "image_name") || key.ends_with("Image") || key.ends_with("_image")
}

fn may_be_a_name(text: &str) -> bool {
    text.len() <= LONGEST && !text.contains("://") && text.parse::<ImageName>().is_ok()
}

/// Whether a text under a key for images is one: a single word may as well be a choice.
fn names_more_than_a_word(text: &str) -> bool {
    text.contains(['/', ':', '@']) && may_be_a_name(text)
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
    #[case(
        "spec: { driver: { repository: nvcr.io/nvidia, image: driver, version: 550 } }",
        "nvcr.io/nvidia/driver:550"
    )]
    fn images_that_operators_are_told_of_are_found(#[case] text: &str, #[case] image: &str) {
        assert_eq!(found(text), [(image.to_owned(), 1)]);
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
    #[case("spec: { role: \"arn:aws:iam::1:role/x:y\", version: 1.2.3/4:5 }")]
    #[case("kind: CustomResourceDefinition\nspec: { default: { image: \"quay.io/org/app:1\" } }")]
    fn what_is_something_else_is_not(#[case] text: &str) {
        assert_eq!(found(text), []);
    }
}
