//! The Helm chart: pure text, made from what the agent prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agent_api::release::Release;
use anyhow::Result;
use serde_json::{Value, json};

use super::parts::{Part, Parts};
use super::pretty;

/// Name of the chart.
pub const CHART: &str = "foothold";
/// Helm keeps an object with this annotation when the chart is removed. With a kind, Kubernetes would delete all objects of
/// that kind.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// Text that the templates share: which services run on the node, and its Site.
const HELPERS: &str = r#"{{- define "foothold.services" -}}
{{- $all := list -}}
{{- range $part := list "baremetalhost" "dhcp" "registry" -}}
{{- if index $.Values.parts $part -}}
{{- $all = append $all $part -}}
{{- end -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{- define "foothold.site" -}}
{{- $site := dict "apiVersion" "foothold.dev/v1" "kind" "Site" -}}
{{- if .Values.network -}}
{{- $_ := set $site "networks" (dict "provisioning" .Values.network) -}}
{{- end -}}
{{- if .Values.access -}}
{{- $_ := set $site "access" .Values.access -}}
{{- end -}}
{{- toJson $site -}}
{{- end -}}
"#;

/// A chart's files: path below its folder, text.
#[derive(Clone, Debug)]
pub struct Chart {
    files: BTreeMap<String, String>,
    values: String,
}

impl Chart {
    /// The chart of these parts.
    pub fn of(release: &Release, parts: &Parts) -> Result<Self> {
        let values = values(release, parts);
        let mut files = BTreeMap::from([
            ("Chart.yaml".to_owned(), about(release, parts)),
            ("templates/_helpers.tpl".to_owned(), HELPERS.to_owned()),
            ("values.schema.json".to_owned(), pretty(&schema(parts))?),
            ("values.yaml".to_owned(), values.clone()),
            ("templates/definitions.yaml".to_owned(), definitions(parts)?),
        ]);
        for (name, printed) in parts.each().filter(|(_, printed)| !printed.objects.is_empty()) {
            files.insert(format!("templates/{name}.yaml"), guarded(&on(name), &printed.objects)?);
        }
        if let Some(node) = parts.node() {
            files.insert("templates/node.yaml".to_owned(), guarded("include `foothold.services` .", &node.objects)?);
        }
        Ok(Self { files, values })
    }

    /// Its files.
    pub const fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// Its `values.yaml`, which users change and give to `helm install --values`.
    pub fn values(&self) -> &str {
        &self.values
    }
}

/// The condition by which a part is switched on; it is false for a part that the chart does not have.
fn on(part: &str) -> String {
    format!("index .Values.parts `{part}`")
}

fn about(release: &Release, parts: &Parts) -> String {
    let names: Vec<&str> = parts.names().collect();
    format!(
        "apiVersion: v2\nname: {CHART}\nversion: {version}\nappVersion: \"{version}\"\ntype: application\ndescription: \
         Services of `{name}` for a cluster of kubeadm ({parts})\n",
        version = release.version,
        name = release.name,
        parts = names.join(", "),
    )
}

/// The kinds. Each is installed if a part that needs it is switched on.
fn definitions(parts: &Parts) -> Result<String> {
    let mut text = String::new();
    for definition in parts.definitions() {
        let needed = parts.each().filter(|(_, printed)| printed.definitions.contains(definition));
        let needed: Vec<String> = needed.map(|(name, _)| format!("({})", on(name))).collect();
        let mut kept = definition.clone();
        kept["metadata"]["annotations"][KEEP.0] = KEEP.1.into();
        let object = pretty(&kept)?.replace("{{", "{{ `{{` }}");
        let _ = write!(text, "{{{{- if or {} }}}}\n---\n{object}{{{{- end }}}}\n", needed.join(" "));
    }
    Ok(text)
}

/// These objects under a condition. They already refer to values of the chart.
fn guarded(condition: &str, objects: &[Value]) -> Result<String> {
    let mut text = format!("{{{{- if {condition} }}}}\n");
    for object in objects {
        text += "---\n";
        text += &pretty(object)?;
    }
    Ok(text + "{{- end }}\n")
}

fn values(release: &Release, parts: &Parts) -> String {
    let provisioning = release.provisioning.clone().unwrap_or_default();
    let address = provisioning.address.as_ref().map(|own| own.address.to_string()).unwrap_or_default();
    let mut text = format!(
        "# Registry that the images were pushed to, with a path if it has one. As it is, images are found on a node into\n\
         # which they were imported: `ctr --namespace k8s.io images import images/NAME.tar`.\n\
         registry: foothold.dev\n\
         # Name of the node that runs all of it: one of the control plane, as `kubectl get nodes` tells it.\n\
         node: \"\"\n\
         # Address at which servers reach that node.\n\
         address: \"{address}\"\n"
    );
    if parts.on_node() {
        text += "# The servers' network, in place of what the definition says: interface: { name: ens4 }, address:\n\
                 # 172.22.0.1/24, range: 172.22.0.10-172.22.0.100, dhcp: guard. The node has that address already.\n\
                 network: {}\n\
                 # Who may upload: tokenSha256 (SHA-256 of a token, in hex), clientCa (PEM).\n\
                 access: {}\n";
    }
    text += "# What is installed.\nparts:\n";
    for name in parts.names() {
        // Without a range there is nothing to lease until `network` has one.
        let on = name != Part::Dhcp.name() || provisioning.range.is_some();
        let _ = writeln!(text, "  {name}: {on}");
    }
    text
}

/// The schema of the values (JSON Schema draft 7), which Helm checks.
fn schema(parts: &Parts) -> Value {
    let text = json!({"type": "string"});
    let switches: serde_json::Map<String, Value> =
        parts.names().map(|name| (name.to_owned(), json!({"type": "boolean"}))).collect();
    let mut properties = json!({
        "registry": {"type": "string", "pattern": "^[a-zA-Z0-9][a-zA-Z0-9.:/_-]*[a-zA-Z0-9]$"},
        "node": text,
        "address": {"type": "string", "pattern": "^([0-9a-fA-F.:]+|ADDRESS)?$"},
        "parts": {"type": "object", "additionalProperties": false, "properties": switches},
        // Helm's own.
        "global": {"type": "object"},
    });
    if parts.on_node() {
        let interface =
            json!({"type": "object", "additionalProperties": false, "properties": {"name": text, "macAddress": text}});
        properties["network"] = json!({"type": "object", "additionalProperties": false, "properties": {
            "interface": interface, "address": text, "range": text,
            "dhcp": {"enum": ["guard", "known", "always", "off"]},
        }});
        properties["access"] = json!({"type": "object", "additionalProperties": false, "properties": {
            "tokenSha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "clientCa": text,
        }});
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object", "additionalProperties": false,
        "required": ["registry", "node", "address", "parts"],
        "properties": properties,
    })
}
