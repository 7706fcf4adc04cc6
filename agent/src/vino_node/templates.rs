//! Templates of libvirt's objects: Jinja with some of Ansible's filters, as users of `ViNO` write them.
//!
//! Where a user gives no template, the pod's own one in `templates/` is used. A value that is not defined is an error that
//! names template and line.

use std::collections::BTreeMap;

use agent_api::vino::values::{FLAVOR_TEMPLATES, NETWORK_TEMPLATES, STORAGE_TEMPLATES};
use md5::{Digest as _, Md5};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde::Deserialize;

/// Name of the pod's own pool, which is the first.
pub const POOL: &str = "vino-default";
/// The most steps that the engine does for one template.
const FUEL: u64 = 1_000_000;

const DOMAIN: &str = include_str!("templates/domain.xml");
const VOLUME: &str = include_str!("templates/volume.xml");
const NETWORK: &str = include_str!("templates/network.xml");
const STORAGE: &str = include_str!("templates/pool.xml");

/// A template, and what messages call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Such as "`domainTemplate` of `master` in `flavor-templates.yaml`".
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Templates of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates {
    flavors: BTreeMap<String, OfFlavor>,
    networks: BTreeMap<String, String>,
    storage: Vec<OfStorage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfFlavor {
    domain_template: Option<String>,
    volume_template: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfStorage {
    name: String,
    libvirt_template: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FlavorFile {
    flavor_templates: BTreeMap<String, OfFlavor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkFile {
    libvirt_networks: NetworkList,
}

/// `ViNO` had both forms.
#[derive(Deserialize)]
#[serde(untagged)]
enum NetworkList {
    List(Vec<OfStorage>),
    Map(BTreeMap<String, OfNetwork>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfNetwork {
    libvirt_template: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageFile {
    libvirt_storage: Vec<OfStorage>,
}

impl Templates {
    /// Reads the data of the `ConfigMap`; what is wrong with it, in words.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let flavors = file::<FlavorFile>(data, FLAVOR_TEMPLATES)?.map(|file| file.flavor_templates);
        let networks = file::<NetworkFile>(data, NETWORK_TEMPLATES)?.map(|file| match file.libvirt_networks {
            NetworkList::List(list) => list.into_iter().map(|one| (one.name, one.libvirt_template)).collect(),
            NetworkList::Map(map) => map.into_iter().map(|(name, one)| (name, one.libvirt_template)).collect(),
        });
        let storage = file::<StorageFile>(data, STORAGE_TEMPLATES)?.map(|file| file.libvirt_storage);
        Ok(Self {
            flavors: flavors.unwrap_or_default(),
            networks: networks.unwrap_or_default(),
            storage: storage.unwrap_or_default(),
        })
    }

    /// The template of a domain of this role.
    pub fn domain(&self, role: &str) -> Template {
        let given = self.flavors.get(role).and_then(|flavor| flavor.domain_template.as_deref());
        chosen(
            given,
            &format!("`domainTemplate` of `{role}` in `{FLAVOR_TEMPLATES}`"),
            DOMAIN,
            "the node's own template of domains",
        )
    }

    /// The template of its first volume.
    pub fn volume(&self, role: &str) -> Template {
        let given = self.flavors.get(role).and_then(|flavor| flavor.volume_template.as_deref());
        chosen(
            given,
            &format!("`volumeTemplate` of `{role}` in `{FLAVOR_TEMPLATES}`"),
            VOLUME,
            "the node's own template of volumes",
        )
    }

    /// The template of a network: the first of these names that has one.
    pub fn network(&self, names: &[&str]) -> Template {
        let found = names.iter().find_map(|name| self.networks.get_key_value(*name));
        let name = found.map_or("", |(name, _)| name.as_str());
        let given = found.map(|(_, text)| text.as_str());
        chosen(given, &format!("`{name}` in `{NETWORK_TEMPLATES}`"), NETWORK, "the node's own template of networks")
    }

    /// Networks for which users gave a template although the values do not choose it.
    pub fn networks_beside(&self, chosen: &[&str]) -> Vec<(String, Template)> {
        let beside = self.networks.iter().filter(|(name, _)| !chosen.contains(&name.as_str()));
        let named = |(name, text): (&String, &String)| {
            (name.clone(), Template { name: format!("`{name}` in `{NETWORK_TEMPLATES}`"), text: text.clone() })
        };
        beside.map(named).collect()
    }

    /// The templates of pools, with the pools' names. First volumes go into the first pool.
    pub fn pools(&self) -> Vec<(String, Template)> {
        let own = || (POOL.to_owned(), chosen(None, "", STORAGE, "the node's own template of pools"));
        let given = self.storage.iter().map(|one| {
            let name = format!("`{}` in `{STORAGE_TEMPLATES}`", one.name);
            (one.name.clone(), Template { name, text: one.libvirt_template.clone() })
        });
        let given: Vec<_> = given.collect();
        if given.is_empty() { vec![own()] } else { given }
    }
}

fn file<T: for<'de> Deserialize<'de>>(data: &BTreeMap<String, String>, key: &str) -> Result<Option<T>, String> {
    let Some(text) = data.get(key).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    serde_saphyr::from_str(text)
        .map(Some)
        .map_err(|error| format!("`{key}`: {}", agent_api::yaml::told_with_lines(&error)))
}

fn chosen(given: Option<&str>, name: &str, own: &str, own_name: &str) -> Template {
    match given {
        Some(text) => Template { name: name.to_owned(), text: text.to_owned() },
        None => Template { name: own_name.to_owned(), text: own.to_owned() },
    }
}

impl Template {
    /// Renders the template. An error names the template and the line.
    pub fn render(&self, context: &Value) -> Result<String, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("hash", hash);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.render_str(&self.text, context).map_err(|error| self.told(&error))
    }

    fn told(&self, error: &Error) -> String {
        let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        format!("{}{line}: {}{detail}", self.name, error.kind())
    }
}

/// Ansible's filter `hash`, which templates make UUIDs with.
fn hash(text: &str, kind: Option<&str>) -> Result<String, Error> {
    match kind.unwrap_or("sha1") {
        "md5" => Ok(hex::encode(Md5::digest(text))),
        "sha256" => Ok(hex::encode(sha2::Sha256::digest(text))),
        other => Err(Error::new(ErrorKind::InvalidOperation, format!("`hash` knows md5 and sha256, not `{other}`"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use minijinja::context;

    use super::{Template, Templates};

    #[test]
    fn a_mistake_is_told_with_template_and_line() {
        let template =
            Template { name: "`domainTemplate` of `master`".to_owned(), text: "<a>\n{{ domain.nme.x }}".to_owned() };
        let error = template.render(&context! { domain => context! { name => "m" } }).expect_err("undefined");
        assert!(error.starts_with("`domainTemplate` of `master`, line 2: "), "{error}");
        let endless = Template {
            name: "loop".to_owned(),
            text: "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}".to_owned(),
        };
        assert!(endless.render(&context! {}).is_err(), "it has an end");
    }

    #[test]
    fn what_ansible_has_beside_jinja_is_there() {
        let template = Template {
            name: String::new(),
            text: "{{ 'a' | hash('md5') }} {% for k, v in m.items() %}{{ k }}{{ v }}{% endfor %}".to_owned(),
        };
        let told = template.render(&context! { m => BTreeMap::from([("a", 1)]) }).expect("rendered");
        assert_eq!(told, "0cc175b9c0f1b6a831c399e269772661 a1");
    }

    #[test]
    fn templates_of_users_replace_the_nodes_own_by_role_and_name() {
        let data = BTreeMap::from([
            ("flavor-templates.yaml".to_owned(), "flavorTemplates: { master: { domainTemplate: D } }".to_owned()),
            (
                "network-templates.yaml".to_owned(),
                "libvirtNetworks: [ { name: pxe, libvirtTemplate: NET } ]".to_owned(),
            ),
        ]);
        let templates = Templates::read(&data).expect("read");
        assert_eq!(templates.domain("master").text, "D");
        assert_ne!(templates.domain("worker").text, "D");
        assert_ne!(templates.volume("master").text, "D");
        assert_eq!(templates.network(&["other", "pxe"]).text, "NET");
        assert_eq!(templates.pools()[0].0, "vino-default");
        let error = Templates::read(&BTreeMap::from([("flavor-templates.yaml".to_owned(), "a: [".to_owned())]));
        assert!(error.expect_err("no YAML").starts_with("`flavor-templates.yaml`: "));
    }
}
