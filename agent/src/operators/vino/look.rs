//! Reads nodes with their pods, hosts, and the `ConfigMap`s and Secrets of users.

use std::collections::BTreeMap;

use agent_api::metal3::BareMetalHost;
use agent_api::vino::spec::{DAEMON_SET_TEMPLATE, NamespacedName, TEMPLATE, Vino};
use agent_api::vino::values::{
    FLAVOR_TEMPLATES, Flavor, NETWORK_TEMPLATES, NodeReport, NodeValues, REPORT, STORAGE_TEMPLATES, VALUES,
};
use agent_api::yaml;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::controller::Controller;
use super::decide::Existing;
use super::objects::selector;
use crate::operators::kit::{Key, Object as _, ObjectError, doing, told_key};

/// `ConfigMap`s of users beside the operator, and the key of each: sizes, then templates of libvirt.
const FLAVORS: (&str, &str) = ("vino-flavors", "flavors.yaml");
const TEMPLATES: [(&str, &str, &str); 3] = [
    ("vino-flavor-templates", FLAVOR_TEMPLATES, "flavorTemplates"),
    ("vino-network-templates", NETWORK_TEMPLATES, "libvirtNetworks"),
    ("vino-storage-templates", STORAGE_TEMPLATES, "libvirtStorage"),
];
/// Keys of a `ConfigMap` that a kind of machines names.
const OF_KIND: [&str; 2] = ["domainTemplate", "volumeTemplate"];

/// A node of the `Vino`.
#[derive(Clone, Debug, Default)]
pub struct NodeFound {
    /// Its name.
    pub name: String,
    /// Whether there is a Node of that name. If not, only hosts name it.
    pub is_there: bool,
    /// Whether the spec asks for machines on it.
    pub is_asked: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its address.
    pub ip: Option<String>,
    /// Its values, as its annotation has them.
    pub values: Option<NodeValues>,
    /// Another `Vino` that uses the node.
    pub of_another: Option<String>,
    /// Whether a pod of the `Vino` is on it.
    pub has_pod: bool,
    /// What the pod says.
    pub report: Option<NodeReport>,
    /// A report that cannot be read, in words.
    pub unreadable: Option<String>,
    /// The version that was read.
    pub version: Option<String>,
}

impl NodeFound {
    /// The report of its pod, if it is about the values of now.
    pub fn current(&self) -> Option<&NodeReport> {
        let values = self.values.as_ref()?;
        self.report.as_ref().filter(|report| report.hash == values.hash)
    }
}

/// Templates and sizes of users that lie in other objects than the `Vino`.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Template of the `DaemonSet`, and where it is from.
    pub daemon_set: Option<(String, String)>,
    /// Sizes, by kind of machine.
    pub flavors: BTreeMap<String, Flavor>,
    /// Templates of libvirt, as files.
    pub templates: BTreeMap<String, String>,
    /// Templates of network data, by kind of machine, and where each is from.
    pub network_data: BTreeMap<String, (String, String)>,
}

/// `ConfigMap`s that a `Vino` reads: a change of one starts a turn.
pub fn config_maps(object: &Vino, runtime: &str) -> Vec<Key> {
    let within = |name: &str| (runtime.to_owned(), name.to_owned());
    let of_kinds = object.spec.nodes.iter().filter_map(|set| set.libvirt_template.as_ref());
    let options = object.spec.daemon_set_options.as_ref();
    let named = of_kinds.chain(options.and_then(|it| it.namespaced_name.as_ref()));
    let own = [DAEMON_SET_TEMPLATE, FLAVORS.0].into_iter().chain(TEMPLATES.iter().map(|(name, ..)| *name));
    own.map(within).chain(named.map(|named| key_of(named, object))).collect()
}

/// Secrets that a `Vino` names.
pub fn secrets(object: &Vino) -> Vec<Key> {
    let templates = object.spec.nodes.iter().filter_map(|set| set.network_data_template.as_ref());
    templates.map(|named| key_of(named, object)).collect()
}

fn key_of(named: &NamespacedName, object: &Vino) -> Key {
    let own = object.key().0;
    let namespace = Some(&named.namespace).filter(|it| !it.is_empty()).cloned().unwrap_or(own);
    (namespace, named.name.clone())
}

/// Sizes of machines: ours, and over them those of users.
fn flavors(of_users: Option<&str>) -> Result<BTreeMap<String, Flavor>, String> {
    let size = |vcpus, memory, root_size| Flavor { vcpus, memory, root_size, ..Flavor::default() };
    let mut all: BTreeMap<String, Flavor> =
        [("master".to_owned(), size(1, 4, 30)), ("worker".to_owned(), size(1, 2, 10))].into();
    let Some(text) = of_users else { return Ok(all) };
    let value: Value = yaml::read(text)?;
    let found = value.get("flavors").and_then(Value::as_object).ok_or("has no `flavors`")?;
    for (name, one) in found {
        let flavor: Flavor =
            serde_json::from_value(one.clone()).map_err(|error| format!("`flavors.{name}`: {error}"))?;
        for (key, number) in [("vcpus", flavor.vcpus), ("memory", flavor.memory), ("rootSize", flavor.root_size)] {
            if number == 0 {
                return Err(format!("`flavors.{name}.{key}` is missing or 0, expected a number above it"));
            }
        }
        all.insert(name.clone(), flavor);
    }
    Ok(all)
}

/// Templates of flavours with those that kinds of machines name.
fn with_kinds(
    of_users: Option<&String>,
    kinds: &BTreeMap<String, Map<String, Value>>,
) -> Result<Option<String>, String> {
    if kinds.is_empty() {
        return Ok(of_users.cloned());
    }
    let mut all = of_users.map_or_else(|| Ok(json!({"flavorTemplates": {}})), |text| yaml::read(text))?;
    if !all["flavorTemplates"].is_object() {
        return Err("`flavorTemplates` is no map".to_owned());
    }
    for (kind, templates) in kinds {
        all["flavorTemplates"][kind] = Value::Object(templates.clone());
    }
    serde_saphyr::to_string(&all).map(Some).map_err(|error| error.to_string())
}

impl Controller {
    async fn map(&self, (namespace, name): &Key) -> Result<Option<BTreeMap<String, String>>, ObjectError> {
        Ok(self.base.objects.get::<ConfigMap>(namespace, name).await?.map(|map| map.data.unwrap_or_default()))
    }

    /// Reads the templates and sizes of users. An error text when one of them is wrong.
    pub(super) async fn given(&self, object: &Vino) -> Result<Result<Given, String>, ObjectError> {
        let mut given = Given::default();
        if let Err(why) = self.libvirt_templates(object, &mut given).await? {
            return Ok(Err(why));
        }
        for set in &object.spec.nodes {
            if set.count > 0 && !given.flavors.contains_key(&set.name) {
                let (namespace, (map, key)) = (&self.settings.ground.namespace, FLAVORS);
                let known = given.flavors.keys().cloned().collect::<Vec<_>>().join(", ");
                return Ok(Err(format!(
                    "spec.nodes: there is no flavour `{}`, only {known}; hint: say its size in ConfigMap `{namespace}/{map}`, \
                     key `{key}`: `flavors: {{{}: {{vcpus: 1, memory: 2, rootSize: 10}}}}`",
                    set.name, set.name
                )));
            }
            let Some(named) = set.network_data_template.as_ref().filter(|named| !named.name.is_empty()) else {
                continue;
            };
            let (namespace, name) = key_of(named, object);
            let at = format!("Secret `{namespace}/{name}`, which `networkDataTemplate` of `{}` names,", set.name);
            let Some(secret) = self.base.objects.secret(&namespace, &name).await? else {
                return Ok(Err(format!("{at} is not there")));
            };
            let text = secret.data.and_then(|mut data| data.remove(TEMPLATE));
            let Some(text) = text.and_then(|text| String::from_utf8(text.0).ok()) else {
                return Ok(Err(format!("{at} has no text `{TEMPLATE}`")));
            };
            given.network_data.insert(set.name.clone(), (at, text));
        }
        let options = object.spec.daemon_set_options.as_ref().and_then(|options| options.namespaced_name.as_ref());
        let named = options.filter(|named| !named.name.is_empty());
        let runtime = self.settings.ground.namespace.clone();
        let key = named.map_or_else(|| (runtime, DAEMON_SET_TEMPLATE.to_owned()), |named| key_of(named, object));
        let at = format!("ConfigMap `{}` with the template of the DaemonSet", told_key(&key));
        match (self.map(&key).await?, named) {
            (Some(mut map), _) => match map.remove(TEMPLATE) {
                Some(text) => given.daemon_set = Some((at, text)),
                None => return Ok(Err(format!("{at} has no `{TEMPLATE}`"))),
            },
            (None, Some(_)) => return Ok(Err(format!("{at} is not there"))),
            (None, None) => {}
        }
        Ok(Ok(given))
    }

    async fn libvirt_templates(&self, object: &Vino, given: &mut Given) -> Result<Result<(), String>, ObjectError> {
        let within = |name: &str| (self.settings.ground.namespace.clone(), name.to_owned());
        let told = |(namespace, name): &Key, key: &str, why: &str| {
            format!("ConfigMap `{namespace}/{name}`, key `{key}`: {why}")
        };
        let (map, key) = FLAVORS;
        let found = self.map(&within(map)).await?;
        let text = found.as_ref().map(|map| map.get(key).map_or("", String::as_str));
        given.flavors = match flavors(text) {
            Ok(flavors) => flavors,
            Err(why) => return Ok(Err(told(&within(map), key, &why))),
        };
        for (map, key, part) in TEMPLATES {
            let Some(mut found) = self.map(&within(map)).await? else { continue };
            let Some(text) = found.remove(key) else { return Ok(Err(told(&within(map), key, "it is not there"))) };
            match yaml::read::<Value>(&text) {
                Ok(value) if !value[part].is_null() => drop(given.templates.insert(key.to_owned(), text)),
                Ok(_) => return Ok(Err(told(&within(map), key, &format!("found no `{part}`")))),
                Err(why) => return Ok(Err(told(&within(map), key, &why))),
            }
        }
        let mut kinds = BTreeMap::new();
        for set in &object.spec.nodes {
            let Some(named) = set.libvirt_template.as_ref().filter(|named| !named.name.is_empty()) else { continue };
            let key = key_of(named, object);
            let at = format!("ConfigMap `{}`, which `libvirtTemplate` of `{}` names,", told_key(&key), set.name);
            let Some(mut found) = self.map(&key).await? else { return Ok(Err(format!("{at} is not there"))) };
            let templates: Map<String, Value> =
                OF_KIND.iter().filter_map(|key| Some(((*key).to_owned(), found.remove(*key)?.into()))).collect();
            if templates.is_empty() {
                return Ok(Err(format!("{at} has neither `{}` nor `{}`", OF_KIND[0], OF_KIND[1])));
            }
            kinds.insert(set.name.clone(), templates);
        }
        match with_kinds(given.templates.get(FLAVOR_TEMPLATES), &kinds) {
            Ok(Some(text)) => drop(given.templates.insert(FLAVOR_TEMPLATES.to_owned(), text)),
            Ok(None) => {}
            Err(why) => return Ok(Err(told(&within(TEMPLATES[0].0), FLAVOR_TEMPLATES, &why))),
        }
        Ok(Ok(()))
    }

    /// All hosts that were made for it.
    pub(super) async fn hosts(&self, object: &Vino) -> Result<Vec<BareMetalHost>, ObjectError> {
        let api = self.base.objects.api::<BareMetalHost>(&self.settings.ground.namespace);
        let own = ListParams::default().labels(&selector(object));
        Ok(api.list(&own).await.map_err(doing("listing BareMetalHosts"))?.items)
    }

    /// Its nodes: those that its selector matches and that have a pod or machines already, and those that still have
    /// machines to lose.
    pub(super) async fn nodes(&self, object: &Vino, hosts: &[BareMetalHost]) -> Result<Vec<NodeFound>, ObjectError> {
        let own = ListParams::default().labels(&selector(object));
        let pods = self.base.objects.api::<Pod>(&self.settings.ground.namespace);
        let pods = pods.list(&own).await.map_err(doing("listing pods of nodes"))?.items;
        let nodes = Api::<Node>::all(self.base.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.map_err(doing("listing nodes"))?.items;
        let mut all: BTreeMap<String, NodeFound> = nodes
            .iter()
            .filter_map(|node| node_found(object, node, &pods))
            .map(|node| (node.name.clone(), node))
            .collect();
        for host in hosts.iter().filter_map(Existing::of) {
            let gone = || NodeFound { name: host.node.clone(), ..NodeFound::default() };
            all.entry(host.node.clone()).or_insert_with(gone);
        }
        Ok(all.into_values().collect())
    }
}

/// What is known of a node; `None` when it does not belong to the `Vino`.
fn node_found(object: &Vino, node: &Node, pods: &[Pod]) -> Option<NodeFound> {
    let name = node.name_any();
    let labels = node.labels().clone();
    let wanted = object.spec.node_selector.as_ref().map(|selector| &selector.match_labels);
    let is_selected = wanted.is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)));
    let on_it = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(name.as_str());
    // Of two, one is on its way out.
    let pod = pods.iter().filter(on_it).min_by_key(|pod| pod.metadata.deletion_timestamp.is_some());
    let values = node.annotations().get(VALUES).map(|text| {
        yaml::read(text)
            .and_then(|value| serde_json::from_value::<NodeValues>(value).map_err(|error| error.to_string()))
    });
    let own = told_key(&object.key());
    let (values, of_another) = match values {
        Some(Ok(values)) if values.vino == own => (Some(values), None),
        Some(Ok(values)) => (None, Some(values.vino)),
        // What nobody can read is written anew.
        Some(Err(_)) | None => (None, None),
    };
    if values.is_none() && !(is_selected && pod.is_some()) {
        return None;
    }
    let report = pod.and_then(|pod| pod.annotations().get(REPORT)).map(|text| serde_json::from_str(text));
    let (report, unreadable) = match report {
        Some(Ok(report)) => (Some(report), None),
        Some(Err(error)) => (None, Some(format!("its pod's report cannot be read: {error}"))),
        None => (None, None),
    };
    let mut addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    Some(NodeFound {
        is_there: true,
        is_asked: is_selected && of_another.is_none() && node.metadata.deletion_timestamp.is_none(),
        labels,
        ip: addresses.find(|it| it.type_ == "InternalIP").map(|it| it.address.clone()),
        values,
        of_another,
        has_pod: pod.is_some(),
        report,
        unreadable,
        version: node.resource_version(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours_of_users_are_over_ours_and_what_is_wrong_is_said() {
        assert_eq!(flavors(None).expect("ours")["master"].memory, 4);
        let text = "flavors:\n  worker: {vcpus: 8, memory: 16, rootSize: 100, hugepages: true, own: x}\n  big: {vcpus: 1, memory: 1, rootSize: 1}\n";
        let all = flavors(Some(text)).expect("flavours");
        assert_eq!((all["worker"].vcpus, all["worker"].hugepages, all.len()), (8, true, 3));
        assert_eq!(all["worker"].more["own"], "x");
        for (text, words) in [
            ("", "has no `flavors`"),
            ("flavors: {a: {vcpus: x}}", "`flavors.a`"),
            ("flavors: {a: {vcpus: 1, memory: 2}}", "`flavors.a.rootSize` is missing or 0"),
            ("[", ""),
        ] {
            let why = flavors(Some(text)).expect_err("refused");
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_template_of_one_kind_is_put_beside_those_of_all() {
        let kinds = [("big".to_owned(), json!({"domainTemplate": "<b/>"}).as_object().expect("a map").clone())].into();
        let users = "flavorTemplates: {worker: {domainTemplate: \"<w/>\"}}".to_owned();
        let made = with_kinds(Some(&users), &kinds).expect("YAML").expect("there");
        let made: Value = yaml::read(&made).expect("YAML");
        assert_eq!(made["flavorTemplates"]["worker"]["domainTemplate"], "<w/>");
        assert_eq!(made["flavorTemplates"]["big"]["domainTemplate"], "<b/>");
        assert_eq!(with_kinds(Some(&users), &BTreeMap::new()), Ok(Some(users)));
        assert_eq!(with_kinds(None, &BTreeMap::new()), Ok(None));
    }
}
