//! What a chart sees of the box that it will be installed on, by the builder's own Helm and the box's own API server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use foothold::commands::common::{self, Job};
use foothold::content::manifests::documents;
use foothold::pipeline;
use foothold::stages::{self, Site};
use foothold_tests::appliance::builder;

/// Where charts of the shapes of public ones lie.
fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../imagebuilder/tests/charts")
}

/// The files that a definition with this content gives, by name.
fn rendered(dir: &Path, content: &str, services: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let file = dir.join("appliance.yaml");
    let head = "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: { name: charts, version: 1.0.0 }\n\
                kubernetes: { version: v1.36.4, from: modules }\noutputs: [{ format: qcow2 }]\n";
    fs_err::write(&file, format!("{head}{services}content:\n  closure: off\n{content}"))?;
    let (at, job) = (builder()?, Job::load(&file)?);
    let lock = common::locked(&at, &job, true)?;
    let (toolbox, key) = pipeline::toolbox(&at, &lock)?;
    let site = Site::new(&at, &job.appliance, Some(&lock), (&toolbox, &key), None)?;
    let mut list = stages::programs(&site)?;
    list.extend([stages::templates(&site), stages::cluster_state(&site)]);
    list.extend(stages::rendered_manifests(&site)?);
    let results = stages::make(&at, &list)?;
    let files = results.of("manifests")?.files.iter();
    files.map(|(path, blob)| Ok((path.clone(), fs_err::read_to_string(at.cache.blob_path(&blob.digest))?))).collect()
}

#[test]
fn a_chart_sees_what_the_box_and_all_its_content_serve() {
    // The path has all that once meant something to a program on the way.
    let dir = tempfile::Builder::new().prefix("a, b=c ").tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, text).expect("written");
    };
    write("asks/Chart.yaml", "apiVersion: v2\nname: asks\nversion: 1.0.0\n");
    let versions = [
        "apps/v1/Deployment",
        "resource.k8s.io/v1/ResourceClaim",
        "metal3.io/v1alpha1/BareMetalHost",
        "externaldns.k8s.io/v1alpha1/DNSEndpoint",
        "example.org/v1/Widget",
        "policy/v1beta1",
        "batch/v1beta1/CronJob",
        "apps/v1beta1",
    ];
    let line = |version: &&str| {
        format!("  {}: {{{{ .Capabilities.APIVersions.Has \"{version}\" | quote }}}}\n", version.replace('/', "_"))
    };
    let lines: String = versions.iter().map(line).collect();
    write(
        "asks/templates/a.yaml",
        &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: answers }}\ndata:\n{lines}"),
    );
    write(
        "m/widget.yaml",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: { name: widgets.example.org }\n\
         spec: { group: example.org, names: { kind: Widget, plural: widgets }, scope: Cluster, versions: [{ name: v1, served: true, storage: true }] }\n",
    );
    write("values, of=this site.yaml", "{}\n");
    let dns = charts().join("external-dns");
    let content = format!(
        "  manifests: [m]\n  charts:\n  - {{ name: asks, namespace: a, chart: asks, values: \"values, of=this site.yaml\" }}\n\
         \x20 - {{ name: dns, namespace: a, chart: \"{}\" }}\n",
        dns.display()
    );
    let provisioning = "services: { provisioning: { interface: { name: ens4 }, address: 172.22.0.1/24, range: 172.22.0.10-172.22.0.100 } }\n";
    let answers = |services: &str| -> Vec<bool> {
        let files = rendered(dir.path(), &content, services).unwrap_or_else(|error| panic!("{error:#}"));
        let text = &files["manifests/02-asks.yaml"];
        let objects = documents::read(text, "asks").expect("objects");
        let data = objects.iter().find(|object| object.name() == "answers").expect("answers").value["data"].clone();
        versions.iter().map(|version| data[version.replace('/', "_")] == "true").collect()
    };
    assert_eq!(answers(provisioning), [true, true, true, true, true, false, false, false]);
    assert_eq!(answers(""), [true, true, false, true, true, false, false, false]);
}
