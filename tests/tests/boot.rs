//! Every way to boot the image ends in a Ready cluster, with nobody touching it.
//!
//! The whole matrix takes long under emulation. Three of its fields run always: two here, one of them after ten power
//! cuts, and a stick with UEFI in `airgap`; the others, and boxes whose clock is wrong, with
//! `cargo test -p foothold-tests --test boot -- --ignored`.

use std::path::Path;

use foothold::cli::{Attach, MachineFirmware, Network};
use foothold_qemu::{Nic, NicModel};
use foothold_tests::appliance::program;
use foothold_tests::client::Kubernetes;
use foothold_tests::{Appliance, How, stock, waits};
use rstest::rstest;
use serde_json::{Value, json};

fn reaches_ready(format: &str, attach: Attach, firmware: MachineFirmware) {
    let mut machine = Appliance::get().boot(How { format, attach, firmware, ..How::default() });
    let ready = machine.until_ready();
    assert!(ready.detail["timings"]["nodeReady"].as_f64().is_some_and(|secs| secs > 0.0), "{ready:?}");
}

#[test]
fn a_plan_of_what_was_built_has_nothing_to_make() {
    let appliance = Appliance::get();
    let mut plan = assert_cmd::Command::new(program());
    let plan = plan.current_dir(&appliance.builder().workspace).args(["plan", "images/appliance", "--json"]).assert();
    let plan = plan.success().get_output().stdout.clone();
    let last = String::from_utf8_lossy(&plan).lines().last().map(str::to_owned).expect("a result");
    let result: Value = serde_json::from_str(&last).expect("JSON");
    let plan = &result["data"];
    let stages = plan["stages"].as_array().expect("stages").clone();
    assert!(stages.len() > 12, "{stages:?}");
    for stage in &stages {
        assert_eq!(stage["state"], "cached", "{stage}");
    }
    assert_eq!(plan["fetch"]["packages"], 0, "{plan}");
}

/// Medium and disk (7 to 12 s), identity to runtime (12 to 20 s), then ever further into the control plane.
const CUTS: [u64; 10] = [8, 9, 10, 11, 13, 15, 18, 24, 32, 45];

/// Whatever instant of its first boot the power is cut at, a box becomes a whole one, and loses nothing from then on.
#[test]
fn a_qcow2_on_bios_is_ready_after_ten_power_cuts_reachable_and_closed_to_strangers() {
    let appliance = Appliance::get();
    let stock = appliance.stock_cluster();
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    let mut machine = appliance.boot_after_cuts(how, CUTS);
    let ready = machine.until_ready();
    let client = machine.client();
    for path in ["/api/v1/status", "/api/v1/events", "/api/v1/timeline", "/api/v1/kubeconfig", "/api/v1/support-bundle"]
    {
        assert_eq!(client.get_as(path, None).0, 401, "{path} without a token");
    }
    assert_eq!(client.get_as("/api/v1/status", Some("wrong")).0, 401);
    assert!(client.get("/api/v1/status").contains("\"ready\":true"));
    assert!(client.get("/api/v1/timeline").contains("control-plane"));

    let bundle = client.support_bundle();
    let journal = bundle.iter().find(|(path, _)| path.ends_with("journal.txt")).expect("the journal").1;
    assert!(journal.contains("Watchdog running with a hardware timeout of 3min"), "the watchdog is not used");
    assert_eq!(waits::sat_out(journal), [""; 0], "its boot sat out a wait");

    let kubernetes = client.kubernetes();
    let nodes = kubernetes.get("/api/v1/nodes");
    let conditions = nodes["items"][0]["status"]["conditions"].as_array().expect("conditions").clone();
    assert!(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"), "{conditions:?}");
    // The second pod of CoreDNS follows `ready`.
    let both = |coredns: &Value| coredns["status"]["availableReplicas"] == 2;
    kubernetes.wait("/apis/apps/v1/namespaces/kube-system/deployments", "coredns", both).expect("all of CoreDNS");
    let pods = kubernetes.get("/api/v1/namespaces/kube-system/pods");
    let pods = pods["items"].as_array().expect("pods").clone();
    assert!(pods.len() >= 7, "etcd, three of the control plane, kube-proxy, two of CoreDNS: {}", pods.len());
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let running = |pod: &Value| pod["status"]["phase"] == "Running";
        // The registry's pod follows `ready` where no uploads are declared.
        let follows = name.starts_with("registry-");
        assert!(running(pod) || follows, "{name}: {}", pod["status"]);
        if follows {
            kubernetes.wait("/api/v1/namespaces/kube-system/pods", name, running).expect("the registry to run");
        }
    }
    let told: Vec<String> = stock::objects(&stock, &kubernetes).iter().map(ToString::to_string).collect();
    assert_eq!(told, [""; 0], "objects, stock | box");
    assert_eq!(stock::manifests(&stock, &client, &bundle), [""; 0]);
    let plan = kubeadm_upgrade_plan(&kubernetes);
    assert!(plan.contains("[upgrade/versions] Target version: v1.36.4"), "{plan}");

    assert_eq!(ready.detail["pulls"], json!([]), "the box carries every image it runs");
    let image = "example.org/not/in-the-release:1";
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "wants-more" },
        "spec": { "containers": [{ "name": "a", "image": image }], "tolerations": [{ "operator": "Exists" }] } });
    kubernetes.create("/api/v1/namespaces/default/pods", &pod);
    let told = machine.until("the refused pull to be told", |event| event.pull().is_some());
    assert_eq!(told.pull().map(|pull| pull.image).as_deref(), Some(image));
    let status = client.get("/api/v1/status");
    assert!(status.contains(&format!("\"pulls\":[{{\"image\":\"{image}\"")), "{status}");
    assert!(status.contains("\"ready\":true"), "a workload's failure is not the box's: {status}");
    appliance.keeps_what_is_made(how, machine);
}

/// What the box's own kubeadm prints, run on the box by a pod that sees what an administrator there would see. It gives
/// a Job of its own a minute, which can be too short on a host that has other work: it is asked up to three times.
fn kubeadm_upgrade_plan(kubernetes: &Kubernetes<'_>) -> String {
    let pods = "/api/v1/namespaces/kube-system/pods";
    let host = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path } });
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let mut told = Vec::new();
    for name in ["kubeadm-1", "kubeadm-2", "kubeadm-3"] {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
            "hostNetwork": true, "restartPolicy": "Never", "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "kubeadm", "image": "registry.k8s.io/pause:3.10.2",
                "command": ["/host/usr/bin/kubeadm", "upgrade", "plan", "v1.36.4"],
                "securityContext": { "runAsUser": 0 },
                "volumeMounts": [
                    mount("host", "/host"), mount("kubernetes", "/etc/kubernetes"), mount("kubelet", "/var/lib/kubelet"),
                ],
            }],
            "volumes": [
                host("host", "/"), host("kubernetes", "/etc/kubernetes"), host("kubelet", "/var/lib/kubelet"),
            ],
        } });
        kubernetes.create(pods, &pod);
        let pod = kubernetes.wait(pods, name, over).expect("kubeadm to end");
        let log = kubernetes.text(&format!("{pods}/{name}/log"));
        if pod["status"]["phase"] == "Succeeded" {
            return log;
        }
        let jobs = kubernetes.get(&format!("{pods}?labelSelector=batch.kubernetes.io/job-name"));
        told.push(format!("{log}\npods of its Job: {}", jobs["items"]));
    }
    panic!("`kubeadm upgrade plan` refuses the cluster: {}", told.join("\n"));
}

#[test]
fn an_iso_as_cd_and_uefi_is_ready_with_a_card_that_loads_its_firmware() {
    let nics = [Nic::user(&[]).model(NicModel::I82551)];
    let how =
        How { format: "iso", attach: Attach::Cdrom, firmware: MachineFirmware::Uefi, nics: &nics, ..How::default() };
    let mut machine = Appliance::get().boot(how);
    let ready = machine.until_ready();
    let addresses = ready.detail["addresses"].as_array().expect("addresses");
    assert!(addresses.contains(&json!("10.0.2.15")), "{ready:?}");
}

#[rstest]
#[case::qcow2_disk_uefi("qcow2", Attach::Disk, MachineFirmware::Uefi)]
#[case::raw_usb_bios("raw", Attach::Usb, MachineFirmware::Bios)]
#[case::raw_usb_uefi("raw", Attach::Usb, MachineFirmware::Uefi)]
#[case::iso_cd_bios("iso", Attach::Cdrom, MachineFirmware::Bios)]
#[case::iso_usb_bios("iso", Attach::Usb, MachineFirmware::Bios)]
#[case::iso_usb_uefi("iso", Attach::Usb, MachineFirmware::Uefi)]
#[case::qcow2_disk_secure_boot("qcow2", Attach::Disk, MachineFirmware::UefiSecure)]
#[ignore = "slow: `cargo test -p foothold-tests --test boot -- --ignored`"]
fn the_rest_of_the_matrix_is_ready(#[case] format: &str, #[case] attach: Attach, #[case] firmware: MachineFirmware) {
    reaches_ready(format, attach, firmware);
}

/// A loop device, for as long as it is held.
struct Loop(String);

impl Loop {
    fn with_large_blocks(file: &Path) -> Self {
        let file = file.to_str().expect("UTF-8");
        Self(tool("losetup", &["--find", "--show", "--sector-size", "4096", file]).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tool("losetup", &["--detach", &self.0]);
    }
}

#[expect(clippy::disallowed_methods, reason = "the host's own tools")]
fn tool(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What is written to a disk whose logical blocks have 4096 bytes boots from such a disk, an `NVMe` drive, and keeps what is
/// made there. BIOS starts from none.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test boot -- --ignored`"]
fn a_disk_with_large_blocks_is_ready_and_keeps_what_is_made() {
    let dir = tempfile::tempdir().expect("a folder");
    let appliance = Appliance::get();
    let (disk, overlay) = (dir.path().join("disk.img"), dir.path().join("disk.qcow2"));
    fs_err::File::create(&disk).and_then(|file| file.set_len(16 << 30)).expect("a sparse file");
    {
        let device = Loop::with_large_blocks(&disk);
        let raw = appliance.image("raw");
        tool(program().to_str().expect("UTF-8"), &["write", raw.to_str().expect("UTF-8"), &device.0]);
    }
    let firmware = MachineFirmware::Uefi;
    let how = How { image: Some(&disk), firmware, network: Network::User, overlay: Some(&overlay), ..How::default() };
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let bundle = machine.client().support_bundle();
    let disks = bundle.iter().find(|(path, _)| path.ends_with("disks/lsblk.txt")).expect("the disks").1;
    let disk = disks.lines().find(|line| line.starts_with("nvme0n1 ")).unwrap_or_else(|| panic!("{disks}"));
    assert!(disk.split_whitespace().any(|word| word == "4096"), "{disks}");
    appliance.keeps_what_is_made(how, machine);
}

/// A clock whose battery is empty, or that somebody has set wrong, and one that is right again at the next boot, when all
/// that the box has made is from the future.
#[rstest]
#[case::long_ago("1970-01-01T00:00:00")]
#[case::far_ahead("2090-01-01T00:00:00")]
#[ignore = "slow: `cargo test -p foothold-tests --test boot -- --ignored`"]
fn a_wrong_clock_is_no_obstacle_and_neither_is_setting_it_right(#[case] clock: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    let appliance = Appliance::get();
    let mut machine = appliance.boot(How { clock: Some(clock), ..how });
    machine.until_ready();
    appliance.keeps_what_is_made(how, machine);
}
