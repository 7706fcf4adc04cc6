//! Whether every image that objects name is in the release.
//!
//! ```text
//! objects (YAML, JSON) --named--> image, object, line --Known::holds--> Unmet: what the box could not pull
//! ```
//! Images are looked for wherever containers stand (`containers`, `initContainers`, `ephemeralContainers`, volumes of
//! images), however deep: so pods, what makes pods, and kinds that nobody here knows are all read alike. What only looks like
//! an image ([`references`]) is told, too, unless the definition says that it is none (`content.notImages`).

pub mod references;
pub mod yaml;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use agent_api::image::{self, ImageName};
use agent_api::release::{ContentKind, Digest, Image};
use anyhow::{Context, Result, anyhow};

use self::yaml::{Node, Value};
use super::Carried;
use crate::builder::Builder;
use crate::config::{Appliance, Closure};
use crate::store::{Cache, Made};

/// How an object without a name is called.
const NAMELESS: &str = "an object without a name";
/// Keys whose lists hold containers.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// An image that an object names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Its name as it stands there.
    pub image: String,
    /// The object, `Deployment web/app`.
    pub object: String,
    /// Line, from 1.
    pub line: usize,
    /// Whether a container is made of it; otherwise it only looks like an image.
    pub sure: bool,
}

/// Every image that the objects of a text name.
pub fn named(text: &str) -> Result<Vec<Named>> {
    let mut found = Vec::new();
    for document in yaml::documents(text)? {
        walk(&document, NAMELESS, &mut found);
        let mut looks = Vec::new();
        look(&document, &mut looks);
        looks.retain(|look: &Named| !found.iter().any(|sure| (&sure.image, sure.line) == (&look.image, look.line)));
        found.extend(looks);
    }
    Ok(found)
}

/// What looks like an image in a document, or in the objects of a list.
fn look(node: &Node, found: &mut Vec<Named>) {
    if let Some(Value::List(items)) = node.get("items").map(|items| &items.value) {
        return items.iter().for_each(|item| look(item, found));
    }
    let object = title(node).unwrap_or_else(|| NAMELESS.to_owned());
    let mut all = Vec::new();
    references::of_object(node, &mut all);
    found.extend(all.into_iter().map(|(image, line)| Named { image, object: object.clone(), line, sure: false }));
}

fn walk(node: &Node, object: &str, found: &mut Vec<Named>) {
    let own = title(node);
    let object = own.as_deref().unwrap_or(object);
    match &node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(|item| walk(item, object, found)),
        Value::Mapping(entries) => {
            for (key, value) in entries {
                if let Value::List(items) = &value.value {
                    let image = |item: &Node| match key.as_str() {
                        key if CONTAINERS.contains(&key) => item.get("image").cloned(),
                        "volumes" => item.get("image").and_then(|image| image.get("reference")).cloned(),
                        _ => None,
                    };
                    found.extend(items.iter().filter_map(image).filter_map(|image| {
                        let text = image.text().filter(|text| !text.is_empty())?;
                        Some(Named { image: text.to_owned(), object: object.to_owned(), line: image.line, sure: true })
                    }));
                }
                walk(value, object, found);
            }
        }
    }
}

/// `Deployment web/app`, if it is an object with a name.
fn title(node: &Node) -> Option<String> {
    let kind = node.get("kind")?.text()?;
    let metadata = node.get("metadata")?;
    let name = metadata.get("name").or_else(|| metadata.get("generateName"))?.text()?;
    Some(match metadata.get("namespace").and_then(Node::text) {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    })
}

/// The images of a release by all their names.
#[derive(Clone, Debug, Default)]
pub struct Known {
    tags: BTreeSet<String>,
    digests: BTreeSet<(String, Digest)>,
}

impl Known {
    /// Those of these images.
    pub fn of<'a>(images: impl IntoIterator<Item = &'a Image>) -> Self {
        let mut known = Self::default();
        for image in images {
            let Ok(name) = image.reference.parse::<ImageName>() else { continue };
            let repository = format!("{}/{}", name.host, name.path);
            for digest in image.index.iter().chain([&image.manifest]) {
                known.digests.insert((repository.clone(), digest.clone()));
            }
            known.tags.extend(name.tag.map(|tag| format!("{repository}:{tag}")));
        }
        known
    }

    /// Whether a pull of that name is served. A digest decides alone, whatever tag stands before it.
    pub fn holds(&self, image: &str) -> bool {
        let Ok(name) = image.parse::<ImageName>() else { return false };
        let repository = format!("{}/{}", name.host, name.path);
        match (name.digest, name.tag) {
            (Some(digest), _) => self.digests.contains(&(repository, digest)),
            (None, Some(tag)) => self.tags.contains(&format!("{repository}:{tag}")),
            (None, None) => false,
        }
    }
}

/// An image that is named and not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unmet {
    /// File that names it.
    pub file: String,
    /// Where and by what.
    pub named: Named,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named { image, object, line, sure: _ } = &self.named;
        write!(f, "`{image}` of {object} ({}:{line})", self.file)
    }
}

/// The images that a text names and `known` does not hold.
pub fn unmet(file: &str, text: &str, known: &Known) -> Result<Vec<Unmet>> {
    let named = named(text).with_context(|| format!("reading `{file}`"))?;
    let unmet = named.into_iter().filter(|named| !known.holds(&named.image));
    Ok(unmet.map(|named| Unmet { file: file.to_owned(), named }).collect())
}

/// Whether the definition says that this is no image.
fn is_none(name: &str, none: &[String]) -> bool {
    none.iter().any(|pattern| image::matches(pattern, name))
}

/// What to say of images that are not there; `None` when all are.
pub fn complaint(mut unmet: Vec<Unmet>) -> Option<anyhow::Error> {
    unmet.sort();
    unmet.dedup();
    let (sure, looks): (Vec<_>, Vec<_>) = unmet.into_iter().partition(|unmet| unmet.named.sure);
    let whole = |image: &String| image.parse::<ImageName>().map_or(image.clone(), |name| name.to_string());
    let quoted = |images: &BTreeSet<String>, text: &dyn Fn(&String) -> String| -> String {
        images.iter().map(|image| format!("\"{}\"", text(image))).collect::<Vec<_>>().join(", ")
    };
    let (images, looking) = (images_of(&sure), images_of(&looks));
    let mut text = Vec::new();
    if !images.is_empty() {
        let many = if images.len() == 1 { "an image is".to_owned() } else { format!("{} images are", images.len()) };
        text.push(format!("{many} named by objects and not in the release:\n{}", lines(&sure)));
    }
    if !looking.is_empty() {
        let many = if looking.len() == 1 { "a text looks".to_owned() } else { format!("{} texts look", looking.len()) };
        text.push(format!("{many} like an image that is not in the release:\n{}", lines(&looks)));
    }
    if text.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = images.union(&looking).cloned().collect();
    let mut hint = format!("add to the definition: `content: {{ images: [{}] }}`", quoted(&all, &whole));
    if !looking.is_empty() {
        let none = quoted(&looking, &String::clone);
        hint.extend([", or say what is no image: `content: { notImages: [", &none, "] }`"]);
    }
    Some(anyhow!("{}\nhint: {hint}, or give up the check: `content: {{ closure: off }}`", text.join("\n")))
}

fn images_of(unmet: &[Unmet]) -> BTreeSet<String> {
    unmet.iter().map(|unmet| unmet.named.image.clone()).collect()
}

fn lines(unmet: &[Unmet]) -> String {
    unmet.iter().map(|unmet| format!("  {unmet}")).collect::<Vec<_>>().join("\n")
}

/// Checks the objects that the content holds. With `closure: off` it only says what it found.
pub fn check(at: &Builder, appliance: &Appliance, carried: &Carried, own: &[Image]) -> Result<()> {
    let known = Known::of(own.iter().chain(&carried.images));
    let sources = sources(&appliance.content.manifests);
    let mut all = Vec::new();
    for file in carried.files.iter().filter(|file| file.kind == ContentKind::Manifest) {
        let text = fs_err::read_to_string(at.cache.blob_path(&file.digest))?;
        all.extend(unmet(&file.path, &text, &known)?.into_iter().map(|unmet| as_written(unmet, &sources)));
    }
    all.retain(|unmet| unmet.named.sure || !is_none(&unmet.named.image, &appliance.content.not_images));
    match (complaint(all), appliance.content.closure) {
        (None, _) => Ok(()),
        (Some(error), Closure::Strict) => Err(error),
        (Some(error), Closure::Off) => {
            at.report.say(&format!("warning: {error}"));
            Ok(())
        }
    }
}

/// Checks what the box itself runs: static pods and addons, of the stage `templates`.
pub fn check_own(cache: &Cache, templates: &Made, images: &[Image]) -> Result<()> {
    let known = Known::of(images);
    let mut all = Vec::new();
    for (name, blob) in &templates.files {
        if name.starts_with("manifests/") || name == "objects.json" {
            let text = fs_err::read_to_string(cache.blob_path(&blob.digest))?;
            all.extend(unmet(name, &text, &known)?.into_iter().filter(|unmet| unmet.named.sure));
        }
    }
    complaint(all).map_or(Ok(()), Err)
}

/// Texts of the files that the user wrote, for saying where an image is named there.
fn sources(manifests: &[std::path::PathBuf]) -> Vec<(String, String)> {
    let files = manifests.iter().flat_map(|path| walkdir::WalkDir::new(path).sort_by_file_name());
    let files = files.filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
    let text = |path: &Path| Some((path.display().to_string(), fs_err::read_to_string(path).ok()?));
    files.filter_map(|entry| text(entry.path())).collect()
}

/// The same, where the user wrote it, if the image stands in one of the sources as it does in the rendered object.
fn as_written(unmet: Unmet, sources: &[(String, String)]) -> Unmet {
    let found = sources.iter().find_map(|(file, text)| {
        let named = named(text).ok()?.into_iter();
        let mut same = named.filter(|named| (&named.image, named.sure) == (&unmet.named.image, unmet.named.sure));
        same.next().map(|named| (file.clone(), named.line))
    });
    match found {
        Some((file, line)) => Unmet { file, named: Named { line, ..unmet.named } },
        None => unmet,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
