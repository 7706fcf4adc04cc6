//! The box's services on a control plane of somebody else: a machine where stock kubeadm ran, and what `foothold export` wrote.
//! There is no box anywhere.
//!
//! ```text
//! foothold export ──► images, chart, medium ─┐ one disk ┌─ ctr images import, kubeadm init
//! images that kubeadm and flannel need ──────┴──────────┴─ helm install ─► pods ─► servers
//! ```

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foothold::commands::common::Job;
use foothold::content::clusters::flannel;
use foothold::export::Folder;
use foothold::host::command::Run;
use foothold::pipeline;
use foothold_agent::cluster::api::Api;
use foothold_agent::ssh::{self, Identity, Session, Target};
use foothold_qemu::{Disk, Firmware, Nic, Tools, Vm, VmBuilder, Writes};
use foothold_tests::programs::program;
use foothold_tests::{appliance, os_image};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::BOOT;
use crate::bench::{BOX, Site, in_namespace, lan};
use crate::booted::{BESIDE, MAC, definition};
use crate::clusters::{OWN_VERSION, client_of, node_image};

const NODE: &str = "kubeadm-1";
/// Namespace of the chart.
const NAMESPACE: &str = "foothold";
/// Serial number of the disk with all that is brought.
const BROUGHT: &str = "brought";
/// Unpacking, importing images, kubeadm; beside nothing else.
const LONG: Duration = Duration::from_secs(1800);
/// Static pods of the box's services, as the kubelet names them.
const STATIC: [&str; 3] = ["dhcp", "ironic", "registry"];

/// What an administrator types on such a machine.
const SETS_UP: &str = r#"set -eu
cd /root
tar -xf /dev/disk/by-id/virtio-brought
for archive in own/images/*.tar parts/images/*.tar; do
  ctr --namespace k8s.io images import "$archive" > /dev/null
done
mkdir -p /var/lib/foothold
cp -r parts/medium /var/lib/foothold/medium
cat > kubeadm.yaml <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: { advertiseAddress: ADDRESS }
nodeRegistration: { name: NODE, taints: [], kubeletExtraArgs: [ { name: node-ip, value: ADDRESS } ] }
timeouts: { controlPlaneComponentHealthCheck: 20m, kubernetesAPICall: 10m, tlsBootstrap: 10m }
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: VERSION
networking: { podSubnet: 10.244.0.0/16 }
dns: { imageRepository: registry.k8s.io/coredns, imageTag: DNS }
etcd: { local: { imageTag: ETCD } }
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
END
kubeadm init --config kubeadm.yaml
kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f own/kube-flannel.yaml
"#;

/// What comes to the machine on one disk.
struct Brought {
    dir: TempDir,
    /// Of images that kubeadm would take in another version.
    tags: [String; 2],
}

impl Brought {
    /// What `foothold export` writes, and what whoever made the control plane has.
    fn make() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let definition = definition(dir.path(), &[], ", clusters: {}");
        let export = Run::new(appliance::program()).arg("export").arg(&definition);
        let export = export.args([Path::new("--to"), &dir.path().join("parts")]);
        export.output().unwrap_or_else(|error| panic!("{error}"));
        let tags = own(&definition, &dir.path().join("own")).unwrap_or_else(|error| panic!("{error:#}"));
        let tar = Run::new("tar").args([Path::new("-C"), dir.path()]);
        let tar = tar.args([Path::new("-cf"), &dir.path().join(BROUGHT)]).args(["parts", "own"]);
        tar.output().unwrap_or_else(|error| panic!("{error}"));
        Self { dir, tags }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Real Helm does something with the chart's release.
    fn helm(&self, arguments: &[&str]) {
        let run = Run::new(program("helm", "helm")).args(arguments).args(["--namespace", NAMESPACE]);
        let run = run.args([Path::new("--kubeconfig"), &self.at("admin.conf")]).env("HOME", self.dir.path());
        run.output().unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Images that kubeadm and flannel need, and flannel's manifest. Returns the tags of CoreDNS and etcd.
fn own(definition: &Path, to: &Path) -> anyhow::Result<[String; 2]> {
    let (at, job) = (appliance::builder()?, Job::load(definition)?);
    let lock = appliance::locked(&at, &job)?;
    let release = pipeline::release(&at, &job.appliance, &lock)?.release;
    let mut folder = Folder::new(to)?;
    for image in release.images.iter().filter(|image| !image.reference.starts_with("foothold.dev/")) {
        folder.image("images", &at.cache, image, release.built)?;
    }
    folder.write("kube-flannel.yaml", flannel(&at.images(), &at.packages())?.as_bytes())?;
    folder.finish()?;
    let tag = |name: &str| release.image(name).map(|image| image.reference[name.len()..].to_owned());
    let tags = ["registry.k8s.io/coredns/coredns:", "registry.k8s.io/etcd:"].map(tag);
    let [Some(dns), Some(etcd)] = tags else { anyhow::bail!("the release has no CoreDNS, or no etcd") };
    Ok([dns, etcd])
}

/// The machine, with the box's address.
fn machine(brought: &Brought, image: &Path, key: &str) -> Vm {
    let user_data = format!("#cloud-config\nssh_authorized_keys: [\"{}\"]\n", key.trim());
    let meta_data = format!("instance-id: {NODE}-1\nlocal-hostname: {NODE}\n");
    let network = format!(
        "version: 2\nethernets:\n  servers: {{ match: {{ macaddress: \"{MAC}\" }}, addresses: [ {BOX}/24 ], \
         routes: [ {{ to: default, via: {BESIDE} }} ] }}\n"
    );
    let files = [("meta-data", &*meta_data), ("user-data", &*user_data), ("network-config", &*network)];
    let seed = os_image::seed(brought.dir.path(), &files);
    let tap = lan().cable("tapkubeadm").expect("a cable");
    let disk = Disk::open(image).expect("an image").writes(Writes::Discard).grow_to(16 << 30);
    VmBuilder::new(&Tools::locate().expect("a toolbox"), NODE)
        .memory_mib(4096)
        .cpus(2)
        .firmware(Firmware::Bios)
        .boot(disk)
        .disk(Disk::open(seed).expect("a seed"))
        .disk(Disk::open(brought.at(BROUGHT)).expect("a disk").serial(BROUGHT))
        .nic(Nic::device(&tap).mac(MAC))
        .keep_on_panic(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("exported"))
        .start()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// kubeadm makes a control plane of it. Returns the administrator's kubeconfig.
async fn set_up(key: &str, [dns, etcd]: &[String; 2]) -> String {
    let target = Target { address: IpAddr::V4(BOX), port: 22, user: "debian".to_owned(), host_key: None };
    let keys = vec![Arc::new(ssh::private_key(key, "the test's key").expect("a key"))];
    let session = Session::connect(&target, &Identity { keys, password: None }, BOOT).await.expect("logged in");
    let script = SETS_UP.replace("ADDRESS", &BOX.to_string()).replace("NODE", NODE).replace("VERSION", OWN_VERSION);
    let script = script.replace("DNS", dns).replace("ETCD", etcd);
    session.run(&["sh", "-s"], script.as_bytes(), |_| ()).await.unwrap_or_else(|error| panic!("{error}"));
    let text = session.output(&["cat", "/etc/kubernetes/admin.conf"], b"").await.expect("a kubeconfig").stdout;
    session.close().await;
    String::from_utf8(text).expect("text")
}

/// Deployments of the chart that are not available, and static pods that are not ready.
async fn missing(api: &Api) -> Vec<String> {
    let list = async |path: String| {
        let found = api.get(&path).await.ok().flatten().unwrap_or_default();
        found["items"].as_array().cloned().unwrap_or_default()
    };
    let deployments = list(format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")).await;
    let waiting = deployments.iter().filter(|it| it["status"]["availableReplicas"] != 1);
    let mut missing: Vec<String> = waiting.map(|it| it["metadata"]["name"].to_string()).collect();
    if deployments.is_empty() {
        missing.push("every Deployment".to_owned());
    }
    let pods = list("/api/v1/namespaces/kube-system/pods".to_owned()).await;
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
    };
    let ready =
        |name: &&&str| pods.iter().any(|pod| pod["metadata"]["name"] == format!("{name}-{NODE}") && is_ready(pod));
    missing.extend(STATIC.iter().filter(|name| !ready(name)).map(|name| (*name).to_owned()));
    missing
}

/// Pods of the chart and static pods of the box's services.
async fn pods_left(api: &Api) -> Vec<String> {
    let of = async |namespace: &str| {
        let found = api.get(&format!("/api/v1/namespaces/{namespace}/pods")).await.expect("asked").expect("a list");
        let names = found["items"].as_array().expect("items").iter();
        names.map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let ours = |name: &String| STATIC.iter().any(|pod| *name == format!("{pod}-{NODE}"));
    let mut left = of(NAMESPACE).await;
    left.extend(of("kube-system").await.into_iter().filter(ours));
    left
}

/// All of the chart's pods run on a machine of kubeadm's; they inspect a server that boots from that machine, and let it go.
/// Without the chart, no pod of it is left.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site exported -- --ignored --nocapture`"]
fn an_exported_chart_runs_on_a_machine_of_kubeadms_and_prepares_a_server() {
    let make = || {
        program("helm", "helm");
        (Brought::make(), node_image())
    };
    in_namespace(make, |(brought, image)| async move {
        lan().address(&format!("{BESIDE}/24")).expect("an address");
        let (private, public) = ssh::new_key("test").expect("a key");
        let vm = machine(&brought, &image, &public);
        let kubeconfig = set_up(&private, &brought.tags).await;
        fs_err::write(brought.at("admin.conf"), &kubeconfig).expect("written");
        let api = client_of(&kubeconfig);
        let mut site = Site::on_machine(vm, api.clone()).await;
        site.tell("kubeadm has made a control plane");

        let chart = brought.at("parts/charts/foothold");
        let values = format!("node={NODE},address={BOX}");
        let chart = chart.to_str().expect("text");
        brought.helm(&["install", "foothold", chart, "--create-namespace", "--set", &values]);
        let (begun, mut last) = (Instant::now(), Vec::new());
        loop {
            let now = missing(&api).await;
            if now.is_empty() {
                break;
            }
            if now != last {
                site.tell(&format!("waits for {}", now.join(", ")));
                last = now;
            }
            assert!(begun.elapsed() < LONG, "{last:?}");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        site.tell("all of the chart runs");

        let server = site.server("server-1", "52:54:00:22:00:01");
        let address = server.address("redfish+https");
        site.host("server-1", &server, json!({"bmc": {"address": address}})).await;
        let host = site.state("server-1", "available", LONG).await;
        assert_eq!(host["status"]["hardware"]["nics"][0]["mac"], server.mac(), "{host:#}");
        server.keep_words("exported");
        site.delete("server-1").await;
        site.gone("server-1", BOOT).await;

        brought.helm(&["uninstall", "foothold", "--wait"]);
        let begun = Instant::now();
        while let left @ [_, ..] = &pods_left(&api).await[..] {
            assert!(begun.elapsed() < BOOT, "{left:?}");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        site.tell("the chart is gone");
        site.stop().await;
    });
}
