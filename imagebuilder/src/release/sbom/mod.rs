//! The list of everything in a release, as SPDX 2.3 in JSON, signed on its own and naming the release's id.
//!
//! ```text
//! Debian's packages ─ Lock ──────────────────┐
//! Go modules ─ programs' own lists ─┐        ├─▶ document (pure) ─▶ sbom.spdx.json
//! crates ─ cargo tree, Cargo.lock ──┴─ Parts ┘
//! release CONTAINS layers, images, files; layer CONTAINS packages, programs; program CONTAINS modules
//! ```
//! Source: SPDX specification 2.3; package-url specification for each type.

pub mod go;
mod ids;
pub mod parts;

use std::collections::{BTreeMap, BTreeSet};

use agent_api::release::{Blob, ContentKind, Image, Release};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::go::{Module, Program};
use self::ids::{id, oci_purl, path_purl};
use self::parts::{Crate, Parts};
use crate::layer::kubernetes;
use crate::lock::{Deb, Lock};
use crate::oci::recipe::Recipe;
use crate::oci::service::Declared;
use crate::store::Made;

/// Where names of documents begin. Nothing need be there: it only has to be unique.
const NAMESPACE: &str = "https://foothold.dev/spdx";
/// The element that is the whole release.
const RELEASE: &str = "SPDXRef-Release";
/// What is not known.
const UNKNOWN: &str = "NOASSERTION";
/// Distribution of the packages.
const DISTRIBUTION: &str = "trixie";

/// What a list is made from.
pub struct Input<'a> {
    /// The manifest.
    pub release: &'a Release,
    /// Its id.
    pub id: &'a str,
    /// What went in.
    pub lock: &'a Lock,
    /// The programs, by name; those of another release of Kubernetes than the box's as `NAME-VERSION`.
    pub programs: &'a Made,
    /// The agent, by name.
    pub agent: &'a Made,
    /// What they are made of.
    pub parts: &'a Parts,
    /// The recipes of images that the builder makes itself.
    pub recipes: &'a [Recipe],
    /// Images of declared services.
    pub services: &'a [Declared],
}

impl<'a> Input<'a> {
    /// The recipe that makes an image, and the release of Kubernetes that the image is of.
    fn made_by(&self, reference: &str) -> Option<(&'a Recipe, &'a str)> {
        let release = self.release;
        let others = release.clusters.iter().flat_map(|clusters| &clusters.versions);
        let versions: Vec<&str> =
            [release.kubernetes.version.as_str()].into_iter().chain(others.map(String::as_str)).collect();
        let recipes = self.recipes.iter().chain(self.services.iter().map(|service| &service.recipe));
        recipes.into_iter().find_map(|recipe| {
            let version = versions.iter().find(|version| recipe.reference_for(version) == reference)?;
            Some((recipe, *version))
        })
    }

    /// Name of a program of that release of Kubernetes.
    fn program_of(&self, name: &str, version: &str) -> String {
        let other = format!("{name}-{version}");
        if self.programs.files.contains_key(&other) { other } else { name.to_owned() }
    }
}

/// The release that a list names.
pub fn release_of(json: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(json).ok()?;
    let namespace = document.get("documentNamespace")?.as_str()?;
    namespace.rsplit('/').next().map(str::to_owned)
}

/// The list, the same bytes for the same input.
pub fn document(input: &Input<'_>) -> Result<Vec<u8>> {
    let mut list = List::default();
    list.release(input);
    list.layers(input)?;
    list.boot(input);
    list.images(input)?;
    list.files(input)?;
    let created = jiff::Timestamp::from_second(i64::try_from(input.release.built)?)?;
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("{} {}", input.release.name, input.release.version),
        "documentNamespace": format!("{NAMESPACE}/{}/{}/{}", input.release.name, input.release.version, input.id),
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "creators": [concat!("Tool: foothold-", env!("CARGO_PKG_VERSION"))],
        },
        "packages": list.packages.into_values().collect::<Vec<_>>(),
        "relationships": list.relationships.into_iter().map(|(from, kind, to)| json!({
            "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to,
        })).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_vec(&document)?)
}

/// Packages by id, and how they hang together: sorted, each once.
#[derive(Default)]
struct List {
    packages: BTreeMap<String, Value>,
    relationships: BTreeSet<(String, &'static str, String)>,
}

/// One package of the list.
struct Item<'a> {
    kind: &'a str,
    name: &'a str,
    version: &'a str,
    sha256: Option<&'a str>,
    /// Package URL.
    purl: Option<String>,
    /// Where it lies, in the release or below it.
    file: Option<String>,
    licence: &'a str,
    /// What else is known about where it came from.
    source: Option<String>,
}

impl<'a> Item<'a> {
    fn new(kind: &'a str, name: &'a str, version: &'a str) -> Self {
        Self { kind, name, version, sha256: None, purl: None, file: None, licence: "", source: None }
    }

    fn json(&self, id: &str) -> Value {
        let mut json = json!({
            "SPDXID": id,
            "name": self.name,
            "downloadLocation": UNKNOWN,
            "filesAnalyzed": false,
            "licenseConcluded": UNKNOWN,
            "licenseDeclared": if self.licence.is_empty() { UNKNOWN } else { self.licence },
            "copyrightText": UNKNOWN,
        });
        if !self.version.is_empty() {
            json["versionInfo"] = self.version.into();
        }
        if let Some(sha256) = self.sha256 {
            json["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": sha256 }]);
        }
        if let Some(purl) = &self.purl {
            let reference = json!({
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl,
            });
            json["externalRefs"] = json!([reference]);
        }
        if let Some(file) = &self.file {
            json["packageFileName"] = file.as_str().into();
        }
        if let Some(source) = &self.source {
            json["sourceInfo"] = source.as_str().into();
        }
        json
    }
}

impl List {
    /// Adds it within another element and returns its id.
    fn add(&mut self, within: &str, item: &Item<'_>) -> String {
        let id = id(item.kind, item.name, item.version, item.sha256.unwrap_or_default());
        self.packages.entry(id.clone()).or_insert_with(|| item.json(&id));
        self.relate(within, "CONTAINS", &id);
        id
    }

    fn relate(&mut self, from: &str, kind: &'static str, to: &str) {
        self.relationships.insert((from.to_owned(), kind, to.to_owned()));
    }

    fn release(&mut self, input: &Input<'_>) {
        let release = input.release;
        let purl = format!("pkg:generic/{}@{}?checksum=sha256:{}", release.name, release.version, input.id);
        let mut item = Item::new("Release", &release.name, &release.version);
        (item.sha256, item.purl) = (Some(input.id), Some(purl));
        item.file = Some(format!("foothold/releases/{}/release.json", input.id));
        self.packages.insert(RELEASE.to_owned(), item.json(RELEASE));
        self.relate("SPDXRef-DOCUMENT", "DESCRIBES", RELEASE);
    }

    fn layers(&mut self, input: &Input<'_>) -> Result<()> {
        for layer in &input.release.layers {
            let mut item = Item::new("Layer", &layer.name, &input.release.version);
            (item.sha256, item.file) = (Some(layer.digest.hex()), Some(layer.digest.store_path()));
            let within = self.add(RELEASE, &item);
            match layer.name.as_str() {
                "os" => {
                    for deb in input.lock.packages("os")?.iter().chain(input.lock.packages("kernel")?) {
                        self.deb(&within, deb);
                    }
                }
                "kubernetes" => {
                    for (name, path) in kubernetes::PROGRAMS {
                        self.program(&within, input, name, path)?;
                    }
                }
                "appliance" => self.agent(&within, input)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn deb(&mut self, within: &str, deb: &Deb) {
        let Deb { name, version, architecture, sha256, .. } = deb;
        let version_in_url = version.replace('+', "%2B").replace(':', "%3A");
        let purl = format!("pkg:deb/debian/{name}@{version_in_url}?arch={architecture}&distro={DISTRIBUTION}");
        let mut item = Item::new("Deb", name, version);
        (item.sha256, item.purl) = (Some(sha256.hex()), Some(purl));
        item.file = Some(deb.file_name());
        self.add(within, &item);
    }

    fn program(&mut self, within: &str, input: &Input<'_>, name: &str, path: &str) -> Result<()> {
        let blob = input.programs.file(name)?;
        let known = input.parts.programs.get(name);
        let main = known.and_then(|program| program.main.as_ref());
        let mut item = Item::new("Program", name, main.map_or("", |main| main.version.as_str()));
        (item.sha256, item.file) = (Some(blob.digest.hex()), Some(path.trim_start_matches('/').to_owned()));
        item.source = known.map(|program| format!("{} by {}", program.package, program.go));
        let program = self.add(within, &item);
        if let Some(known) = known {
            self.modules(&program, known);
        }
        Ok(())
    }

    fn modules(&mut self, program: &str, known: &Program) {
        let module = |list: &mut Self, module: &Module| {
            let mut item = Item::new("Go", &module.path, &module.version);
            let path = module.path.to_lowercase();
            item.purl = Some(format!("pkg:golang/{}@{}", path_purl(&path), module.version.replace('+', "%2B")));
            item.source = (!module.sum.is_empty()).then(|| format!("go.sum {}", module.sum));
            list.add(program, &item)
        };
        if let Some(main) = &known.main {
            let main = module(self, main);
            self.relate(program, "GENERATED_FROM", &main);
        }
        for linked in &known.modules {
            module(self, linked);
        }
    }

    fn agent(&mut self, within: &str, input: &Input<'_>) -> Result<()> {
        let blob = input.agent.file(AGENT)?;
        let mut item = Item::new("Program", AGENT, env!("CARGO_PKG_VERSION"));
        (item.sha256, item.file) = (Some(blob.digest.hex()), Some(format!("usr/bin/{AGENT}")));
        let agent = self.add(within, &item);
        for Crate { name, version, sha256, licence } in &input.parts.crates {
            let mut item = Item::new("Crate", name, version);
            (item.sha256, item.licence) = (sha256.as_deref(), licence);
            item.purl = Some(format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
            let id = self.add(&agent, &item);
            if name == AGENT {
                self.relate(&agent, "GENERATED_FROM", &id);
            }
        }
        Ok(())
    }

    fn boot(&mut self, input: &Input<'_>) {
        for entry in &input.release.boot {
            let files: [(&str, &Blob, &str); 2] =
                [("vmlinuz", &entry.kernel, &entry.kernel_release), ("initrd", &entry.initrd, &input.release.version)];
            for (name, blob, version) in files {
                let mut item = Item::new("Boot", name, version);
                (item.sha256, item.file) = (Some(blob.digest.hex()), Some(name.to_owned()));
                self.add(RELEASE, &item);
            }
        }
    }

    fn images(&mut self, input: &Input<'_>) -> Result<()> {
        for image in &input.release.images {
            let id = self.image(image);
            // An image may have several names.
            let same = |other: &&Image| other.manifest == image.manifest;
            let made = input.release.images.iter().filter(same).find_map(|image| input.made_by(&image.reference));
            let Some((recipe, version)) = made else { continue };
            for (path, source) in &recipe.files {
                match source.split_once(':') {
                    Some(("module", name)) => self.program(&id, input, &input.program_of(name, version), path)?,
                    Some(("agent", name)) => self.own(&id, input, name, path)?,
                    _ => {}
                }
            }
            if let Some(service) = input.services.iter().find(|service| service.recipe.reference == recipe.reference) {
                for deb in service.packages(input.lock)? {
                    self.deb(&id, deb);
                }
                continue;
            }
            for name in &recipe.debian {
                let deb = input.lock.packages("os")?.iter().find(|deb| deb.name == *name);
                let deb = deb.with_context(|| format!("the recipe of `{}` names `{name}`", recipe.reference))?;
                self.deb(&id, deb);
            }
        }
        Ok(())
    }

    fn own(&mut self, within: &str, input: &Input<'_>, name: &str, path: &str) -> Result<()> {
        let mut item = Item::new("Program", name, env!("CARGO_PKG_VERSION"));
        item.sha256 = Some(input.agent.file(name)?.digest.hex());
        item.file = Some(path.trim_start_matches('/').to_owned());
        self.add(within, &item);
        Ok(())
    }

    fn image(&mut self, image: &Image) -> String {
        let mut item = Item::new("Image", &image.reference, "");
        (item.sha256, item.purl) = (Some(image.manifest.hex()), Some(oci_purl(image)));
        item.source = image.index.as_ref().map(|index| format!("index {index}"));
        self.add(RELEASE, &item)
    }

    /// What the box serves, and the packages that no layer holds.
    fn files(&mut self, input: &Input<'_>) -> Result<()> {
        for file in &input.release.content {
            let mut parts = file.path.rsplit('/');
            let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let name = input.program_of(name, version);
            if file.kind == ContentKind::Kubernetes && file.within.is_none() && input.programs.files.contains_key(&name)
            {
                self.program(RELEASE, input, &name, &file.path)?;
                continue;
            }
            let mut item = Item::new("File", &file.path, "");
            (item.sha256, item.file) = (Some(file.digest.hex()), Some(file.path.clone()));
            self.add(RELEASE, &item);
        }
        let mut elsewhere: Vec<String> = ["toolbox", "os", "kernel"].map(str::to_owned).into();
        elsewhere.extend(input.services.iter().map(Declared::set));
        let served = input.lock.debian.iter().filter(|(set, _)| !elsewhere.contains(*set));
        for deb in served.flat_map(|(_, debs)| debs) {
            self.deb(RELEASE, deb);
        }
        Ok(())
    }
}

/// The box's own program.
const AGENT: &str = "foothold-agent";

#[cfg(test)]
mod tests;
