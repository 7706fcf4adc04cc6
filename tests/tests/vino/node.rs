//! A node: the tree of the image in namespaces of its own, with libvirt in it. All of it ends with the first process in there.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use agent_api::release::Vino;
use agent_api::vino::values::{Accelerator, NodeReport, NodeValues};
use axum::Router;
use axum::routing::get;
use foothold::config::{Provisioning, Services};
use foothold::host::command::Run;
use foothold_agent::first_boot::firewall::{Wanted, ruleset};
use foothold_agent::host::{Output, RunError, Runner, System};
use foothold_agent::vino_node::builder::{Builder, Given};
use foothold_agent::vino_node::redfish::serve::{self, Htpasswd};
use foothold_agent::vino_node::virsh::Virsh;
use foothold_agent::vino_node::{Paths, libvirt};
use foothold_tests::pods::{first_process, wait_for};
use foothold_tests::service_image::ServiceImage;
use serde_json::Value;

/// The first process: what a pod's mounts are, an interface to plug in, a KVM that nobody may open, libvirt.
const INIT: &str = r#"
set -e
mount --make-rprivate /
ip link set lo up
ip link add uplink type veth peer name far
mount --bind "$1" "$1"
cd "$1"
mkdir -p proc sys dev run
mount -t proc proc proc
mount -t sysfs sys sys
mount --rbind /dev dev
if [ -e dev/kvm ]; then mount --bind etc/no-kvm dev/kvm; fi
mount -t tmpfs run run
mkdir -p run/libvirt
chroot . /usr/sbin/libvirtd &
trap 'exit 0' TERM
while :; do sleep 0.2 & wait $! || true; done
"#;
/// A machine under emulation on a slow host.
const PATIENCE: Duration = Duration::from_secs(90);

/// The node.
pub struct TestNode {
    init: Child,
    inside: u32,
    image: ServiceImage,
    builder: Builder,
}

/// Runs programs in the node.
#[derive(Debug)]
struct Inside {
    init: u32,
}

impl Runner for Inside {
    fn run(&self, argv: &[&str], stdin: &[u8], deadline: Duration) -> Result<Output, RunError> {
        let (pid, root) = (self.init.to_string(), format!("--root=/proc/{}/cwd", self.init));
        let wd = format!("--wd=/proc/{}/cwd", self.init);
        let enter = ["nsenter", "--target", &pid, "--mount", "--net", "--pid", &root, &wd];
        let argv: Vec<&str> = enter.into_iter().chain(argv.iter().copied()).collect();
        System::new().run(&argv, stdin, deadline)
    }
}

impl TestNode {
    /// One whose libvirt answers.
    pub fn start() -> Self {
        let services = Services {
            provisioning: Some(Provisioning::default()),
            vino: Some(Vino::default()),
            ..Services::default()
        };
        let image = ServiceImage::of_packages(&services, "vino").expect("an image");
        let root = image.tree.path();
        let open = |mode| std::fs::Permissions::from_mode(mode);
        fs_err::set_permissions(root, open(0o755)).expect("QEMU is another user");
        libvirt::settings(root, Accelerator::Tcg).expect("settings");
        fs_err::write(root.join("etc/no-kvm"), "").expect("written");
        fs_err::set_permissions(root.join("etc/no-kvm"), open(0o000)).expect("closed");
        let paths = Paths { shared: root.join("etc/vino"), ..Paths::below(root) };
        fs_err::create_dir_all(&paths.shared).expect("a folder");
        fs_err::write(paths.accelerator(), "tcg").expect("written");
        let log = root.join("libvirtd.log");
        let (init, inside) = first_process(INIT, &[root.to_str().expect("UTF-8")], &log);
        let virsh = Virsh::new(Arc::new(Inside { init: inside }));
        wait_for("libvirt to answer", PATIENCE, || virsh.run(&["list"]).ok());
        let builder = Builder { virsh, paths, node_ip: "192.0.2.1".to_owned(), interface: None };
        Self { init, inside, image, builder }
    }

    /// One pass with the node's own templates.
    pub fn pass(&self, values: &NodeValues) -> NodeReport {
        self.pass_with(values, &Given::default())
    }

    /// One pass.
    pub fn pass_with(&self, values: &NodeValues, given: &Given) -> NodeReport {
        self.builder.pass(values, given).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// What libvirt has of it goes, as with a pod; bridges and volumes stay.
    pub fn forget(&self) {
        let each = |list: &[&str], commands: &[&str]| {
            for name in self.builder.virsh.lines(list).expect("a list") {
                for command in commands {
                    self.virsh(&[command, &name]);
                }
            }
        };
        each(&["list", "--all", "--name"], &["undefine"]);
        each(&["pool-list", "--name"], &["pool-destroy", "pool-undefine"]);
        let bridges = self.builder.virsh.lines(&["net-list", "--name"]).expect("a list");
        each(&["net-list", "--name"], &["net-destroy", "net-undefine"]);
        for bridge in bridges {
            self.run(&["ip", "link", "add", "name", &bridge, "type", "bridge"]);
            self.run(&["ip", "link", "set", "dev", "uplink", "master", &bridge]);
        }
    }

    /// Templates of a user.
    pub fn given(flavors: &str) -> Given {
        Given {
            templates: BTreeMap::from([("flavor-templates.yaml".to_owned(), flavors.to_owned())]),
            ..Given::default()
        }
    }

    /// What `virsh` says.
    pub fn virsh(&self, arguments: &[&str]) -> String {
        self.builder.virsh.run(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// What a program in the node says.
    pub fn run(&self, argv: &[&str]) -> String {
        self.builder.virsh.ip(&argv[1..]).unwrap_or_else(|error| panic!("{argv:?}: {error}"))
    }

    /// All that could be left: domains, networks, pools, interfaces, files.
    pub fn everything(&self) -> BTreeSet<String> {
        let lists = [["list", "--all"], ["net-list", "--all"], ["pool-list", "--all"]];
        let mut all: BTreeSet<String> =
            lists.iter().flat_map(|list| self.builder.virsh.lines(list).expect("a list")).collect();
        let links = self.builder.virsh.ip(&["-brief", "link"]).expect("links");
        all.extend(links.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned));
        let files = self.builder.paths.state.clone();
        let mut folders = vec![files];
        while let Some(folder) = folders.pop() {
            for entry in fs_err::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    all.insert(path.display().to_string());
                }
            }
        }
        // What dnsmasq leaves of a network for its next start is libvirt's own.
        all.retain(|path| !path.contains("/dnsmasq/"));
        all
    }

    /// Waits.
    pub fn wait(what: &str, is: impl Fn() -> bool) {
        wait_for(what, PATIENCE, || is().then_some(()));
    }

    /// Has the node the firewall of a box, and its bridges show it what they forward, where the kernel can.
    #[expect(clippy::print_stdout, reason = "what this kernel cannot show is told")]
    pub fn guard(&self) {
        let wanted =
            Wanted { ssh: false, ntp: false, provisioning: false, node_ports: false, pod_cidr: "10.244.0.0/16" };
        let inside = Inside { init: self.inside };
        inside.run(&["nft", "-f", "-"], ruleset(&wanted).as_bytes(), PATIENCE).expect("a firewall");
        let shown = inside.run(&["dash", "-c", "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables"], b"", PATIENCE);
        if let Err(error) = shown {
            println!("bridges do not show the firewall what they forward: {error}");
        }
    }

    /// Puts a card of the network that this thread is in on a bridge of the node, as a node that shares a bridge with its box
    /// has one. `address` is the node's there, such as `172.22.0.60/24`.
    pub fn bridge(&self, card: &str, bridge: &str, address: &str) {
        let given = Run::new("ip").args(["link", "set", card, "netns", &self.inside.to_string()]).output();
        given.unwrap_or_else(|error| panic!("giving `{card}` to the node: {error}"));
        self.run(&["ip", "link", "add", bridge, "type", "bridge"]);
        self.run(&["ip", "address", "add", address, "dev", bridge]);
        self.run(&["ip", "link", "set", card, "master", bridge, "up"]);
        self.run(&["ip", "link", "set", bridge, "up"]);
    }

    /// Redfish of this node on loopback, for `admin` with the password `secret`.
    pub fn redfish(&self) -> Redfish {
        self.redfish_at(SocketAddr::from(([127, 0, 0, 1], 0)), "secret")
    }

    /// Redfish of this node, for `admin`. It is in the network that this thread is in.
    pub fn redfish_at(&self, anywhere: SocketAddr, password: &str) -> Redfish {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let guard =
            Htpasswd { paths: self.builder.paths.clone(), first: Some(("admin".to_owned(), password.to_owned())) };
        let (virsh, paths) = (self.builder.virsh.clone(), self.builder.paths.clone());
        let address = runtime.block_on(async {
            let listener = serve::listen(anywhere).await.expect("a listener");
            let consoles = serve::listen(anywhere).await.expect("a listener");
            let address = listener.local_addr().expect("an address");
            #[expect(clippy::disallowed_methods, reason = "it ends with the runtime")]
            tokio::spawn(async move { serve::serve(listener, consoles, virsh, paths, Arc::new(guard)).await });
            address
        });
        let redfish = Redfish { runtime, address, password: password.to_owned() };
        wait_for("Redfish to have the machines", PATIENCE, || {
            let all = redfish.get("/redfish/v1/Systems");
            all["Members"].as_array().is_some_and(|members| !members.is_empty()).then_some(())
        });
        redfish
    }

    fn log(&self) -> PathBuf {
        self.image.tree.path().join("libvirtd.log")
    }
}

impl Drop for TestNode {
    #[expect(clippy::print_stdout, reason = "what libvirt said is told where a test fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs_err::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("libvirt said:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
        let _ = self.init.kill();
        let _ = self.init.wait();
    }
}

/// A client of Redfish, and the service.
pub struct Redfish {
    runtime: tokio::runtime::Runtime,
    /// Where it is.
    pub address: SocketAddr,
    password: String,
}

impl Redfish {
    /// The status of an answer.
    pub fn status(&self, method: &str, path: &str, body: Option<&Value>, (user, password): (&str, &str)) -> u16 {
        self.ask(method, path, body, user, password).0
    }

    /// A document.
    pub fn get(&self, path: &str) -> Value {
        let (status, text) = self.ask("GET", path, None, "admin", &self.password);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// A change that succeeds.
    pub fn change(&self, method: &str, path: &str, body: &Value) {
        let (status, text) = self.ask(method, path, Some(body), "admin", &self.password);
        assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
    }

    /// The URL of an image with this content.
    pub fn image(&self, content: &'static [u8]) -> String {
        self.runtime.block_on(async {
            let listener = serve::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a listener");
            let address = listener.local_addr().expect("an address");
            let router = Router::new().route("/image.iso", get(move || async move { content }));
            #[expect(clippy::disallowed_methods, reason = "it ends with the runtime")]
            tokio::spawn(async move { axum::serve(listener, router).await });
            format!("http://{address}/image.iso")
        })
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>, user: &str, password: &str) -> (u16, String) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().build().expect("a client");
            let mut request =
                client.request(method, format!("http://{}{path}", self.address)).basic_auth(user, Some(password));
            if let Some(body) = body {
                request = request.json(body);
            }
            let answer = request.send().await.expect("an answer");
            (answer.status().as_u16(), answer.text().await.expect("text"))
        })
    }
}
