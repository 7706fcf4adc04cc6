//! YAML of the pages, each block checked by those who read it in earnest.

use std::collections::BTreeMap;

use agent_api::site::Site;
use agent_api::{clusters, metal3, sip, vino};
use foothold::config::{self, Checked, simulation};
use foothold::{oci, osimage};
use foothold_agent::bmc::manifests;
use foothold_agent::provisioning::segment::settings::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;

const APPLIANCE: &str = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: edge, version: 1.4.0 }\n";
const SITE: &str = "apiVersion: foothold.dev/v1\nkind: Site\n";
/// Keys that a part of a definition starts with.
const APPLIANCE_KEYS: [&str; 8] =
    ["boot", "budgets", "content", "firstBoot", "kubernetes", "outputs", "services", "sign"];
/// Keys that a part of a Site starts with.
const SITE_KEYS: [&str; 5] = ["access", "hostname", "networks", "ntp", "uploads"];
/// Files that the examples name, beside them.
const NAMED: [&str; 14] = [
    "app.oci.tar",
    "ca.crt",
    "charts/web/Chart.yaml",
    "cluster-appliance.yaml",
    "cluster.application.yaml",
    "cluster.provisioning.yaml",
    "images/app/image.yaml",
    "images/os/debian-node/os-image.yaml",
    "kustomize/site/kustomization.yaml",
    "manifests/namespace.yaml",
    "out/appliance.qcow2",
    "probe.tar",
    "release.key",
    "values/web.yaml",
];

/// Checks blocks beside the files that they name.
pub struct Checker {
    folder: TempDir,
    /// Schemas of metal3's kinds, of ICN's and ours, as the API server has them.
    kinds: BTreeMap<String, Value>,
}

impl Checker {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in NAMED {
            let file = folder.path().join(name);
            fs_err::create_dir_all(file.parent().expect("a folder")).expect("folders");
            fs_err::write(file, "").expect("a file");
        }
        let mut kinds = BTreeMap::new();
        for definition in metal3::crds::all()
            .into_iter()
            .chain(clusters::crds::all())
            .chain(sip::crds::all())
            .chain(vino::crds::all())
        {
            let version = definition.spec.versions.into_iter().next().expect("a version");
            let schema = version.schema.and_then(|schema| schema.open_api_v3_schema).expect("a schema");
            kinds.insert(definition.spec.names.kind, serde_json::to_value(schema).expect("JSON"));
        }
        Self { folder, kinds }
    }

    /// Whether a block is right; `info` names the file that it is, where that cannot be seen from its keys.
    pub fn check(&self, info: &str, text: &str) -> Result<(), String> {
        if !info.is_empty() {
            return self.recipe(info, text);
        }
        let objects = manifests::objects(text)?;
        let first = objects.first().ok_or("there is nothing in it")?;
        let starts_with = |keys: &[&str]| keys.iter().any(|key| first.get(key).is_some());
        match first["kind"].as_str() {
            Some("Appliance") => self.definition(text),
            Some("Simulation") => self.simulation(text),
            Some("Site") => self.site(text),
            Some(_) => self.objects(text, &objects),
            None if first.get("server").is_some() => Settings::parse(text).map(|_| ()).map_err(|it| it.to_string()),
            None if starts_with(&APPLIANCE_KEYS) => self.definition(&format!("{APPLIANCE}{text}")),
            None if starts_with(&SITE_KEYS) => self.site(&format!("{SITE}{text}")),
            None => Err("it is of no kind that is known here".into()),
        }
    }

    fn definition(&self, text: &str) -> Result<(), String> {
        good(config::check(&self.folder.path().join("appliance.yaml"), text.to_owned()))
    }

    /// The box and the desk read it each in its own way, and both must take it.
    fn site(&self, text: &str) -> Result<(), String> {
        Site::parse(text).map_err(|error| error.to_string())?;
        let file = self.folder.path().join("site.yaml");
        fs_err::write(&file, text).map_err(|error| error.to_string())?;
        good(config::lint(&file).map_err(|error| error.to_string())?)
    }

    fn simulation(&self, text: &str) -> Result<(), String> {
        let checked = simulation::check(&self.folder.path().join("simulation.yaml"), text.to_owned());
        checked.map(|_| ()).map_err(|problems| foothold::problems::render(&problems, false))
    }

    fn recipe(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.folder.path().join(file);
        fs_err::write(&path, text).map_err(|error| error.to_string())?;
        match file {
            "image.yaml" => oci::recipe::Recipe::read(&path).map(|_| ()).map_err(|error| format!("{error:#}")),
            "os-image.yaml" => {
                osimage::recipe::Recipe::read(self.folder.path()).map(|_| ()).map_err(|error| format!("{error:#}"))
            }
            other => Err(format!("nothing here reads `{other}`")),
        }
    }

    fn objects(&self, text: &str, objects: &[Value]) -> Result<(), String> {
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().ok_or_else(|| format!("a {kind} has no name"))?;
            match (object["apiVersion"].as_str(), self.kinds.get(kind)) {
                (
                    Some(
                        "airship.airshipit.org/v1"
                        | "metal3.io/v1alpha1"
                        | "bpa.akraino.org/v1alpha1"
                        | "kpa.foothold.dev/v1alpha1",
                    ),
                    Some(schema),
                ) => {
                    fits(&own(object), schema, &format!("{kind} {name}"))?;
                }
                (Some("v1"), None) if kind == "Secret" => {}
                (version, _) => return Err(format!("{version:?} {kind}: nothing here reads that")),
            }
        }
        let hosts = objects.iter().any(|object| object["kind"] == "BareMetalHost");
        let hosts = if hosts { manifests::read(text).map_err(|error| error.to_string())? } else { Vec::new() };
        hosts
            .into_iter()
            .try_for_each(|host| host.credentials.map(|_| ()).map_err(|why| format!("{}: {why}", host.name)))
    }
}

/// Not a single problem was found.
fn good(checked: Checked) -> Result<(), String> {
    let problems = checked.problems;
    if problems.list.is_empty() { Ok(()) } else { Err(foothold::problems::render(&problems, false)) }
}

/// An object without what the API server itself knows of all objects.
fn own(object: &Value) -> Value {
    let mut own = object.clone();
    for key in ["apiVersion", "kind", "metadata"] {
        own.as_object_mut().and_then(|fields| fields.remove(key));
    }
    own
}

/// Whether a value fits a schema of a custom resource definition, unknown fields included. `at` is where it stands.
fn fits(value: &Value, schema: &Value, at: &str) -> Result<(), String> {
    if let Some(list) = schema["enum"].as_array().filter(|list| !list.contains(value)) {
        return Err(format!("{at}: {value} is not one of {}", json!(list)));
    }
    let right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => true,
    };
    if !right {
        return Err(format!("{at}: {value} is not of the type {}", schema["type"]));
    }
    if let Some(missing) = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|key| key.as_str().is_some_and(|key| value.get(key).is_none()))
    {
        return Err(format!("{at}: {missing} is missing"));
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{key}");
        let known = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(known) if known.is_object() => fits(inner, known, &at)?,
            None if schema["properties"].is_object() => return Err(format!("{at}: there is no such field")),
            Some(_) | None => {}
        }
    }
    value.as_array().into_iter().flatten().try_for_each(|item| fits(item, &schema["items"], &format!("{at}[]")))
}

#[test]
fn wrong_yaml_is_noticed() {
    let checker = Checker::new();
    let host = |spec: &str| {
        format!("apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {{ name: a }}\nspec: {spec}\n")
    };
    let wrong = [
        ("", "content: { imags: [] }\n".to_owned(), "imags"),
        ("", "content: { files: [ { name: a, from: nowhere } ] }\n".to_owned(), "nowhere"),
        ("", "networks: { dns: [ nobody ] }\n".to_owned(), "nobody"),
        ("", "server: 172.22.0.1\nranges: []\n".to_owned(), "ranges"),
        ("", "apiVersion: foothold.dev/v1\nkind: Simulation\nsrvers: []\n".to_owned(), "srvers"),
        ("", host("{ onlin: true }"), "onlin"),
        ("", host("{ online: 1 }"), "online"),
        ("", host("{ online: true, bootMode: bios }"), "bootMode"),
        ("", "something: else\n".to_owned(), "no kind"),
        ("image.yaml", "refernce: a\n".to_owned(), "refernce"),
        ("os-image.yaml", "package: []\n".to_owned(), "package"),
    ];
    for (info, text, told) in wrong {
        let why = checker.check(info, &text).expect_err(&text);
        assert!(why.contains(told), "{text}{why}");
    }
    let image = "apiVersion: metal3.io/v1alpha1\nkind: DataImage\nmetadata: { name: a }\nspec: { url: \"http://a\" }\n";
    assert_eq!(checker.check("", image), Ok(()));
    let host = checker.check("", &host("{ online: true }")).expect_err("it has no Secret");
    assert!(host.contains("credentialsName"), "{host}");
}
