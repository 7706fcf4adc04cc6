//! Many hosts at a time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::site::Site;

/// Benchmarks take turns: the API server's writes are counted as a whole.
static TURN: Mutex<()> = Mutex::const_new(());

/// Systems of one BMC. Somebody may have installed them.
async fn fleet(site: &Site, hosts: usize, address: &str, installed: bool) {
    for number in 0..hosts {
        let mac = format!("52:54:01:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        let bmc = json!({"address": format!("{address}/redfish/v1/Systems/{number}"), "credentialsName": "all-bmc"});
        let spec = json!({"bootMACAddress": mac, "bmc": bmc, "externallyProvisioned": installed});
        site.host_only(&format!("h{number}"), spec).await;
    }
}

/// States of all hosts of the namespace.
async fn states(site: &Site) -> Vec<String> {
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts?limit=500", site.namespace);
    let (mut states, mut next) = (Vec::new(), String::new());
    loop {
        let page = site.api.get(&format!("{path}&continue={next}")).await.expect("asked").expect("a list");
        let hosts = page["items"].as_array().into_iter().flatten();
        let state = |host: &Value| host["status"]["provisioning"]["state"].as_str().unwrap_or_default().to_owned();
        states.extend(hosts.map(state));
        match page["metadata"]["continue"].as_str() {
            Some(more) if !more.is_empty() => more.clone_into(&mut next),
            Some(_) | None => return states,
        }
    }
}

/// How long it takes until all are in a state.
async fn until(site: &Site, hosts: usize, state: &str, within: Duration) -> Duration {
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        let states = states(site).await;
        let left: Vec<&String> = states.iter().filter(|it| *it != state).collect();
        if states.len() == hosts && left.is_empty() {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < within, "{} of {hosts} are not {state}: {left:?}", left.len());
        // To ask about thousands costs both sides much: looking is a tenth of what goes on.
        tokio::time::sleep(Duration::from_millis(500).max(9 * asked.elapsed())).await;
    }
}

/// #905, #725, BMO-14: counted where it matters, at Ironic.
#[tokio::test]
async fn the_provisioning_limit_is_never_exceeded() {
    // Long enough that slots, not the machine that the test runs on, are what there is too little of.
    let mut site = Site::prepare("limit", Duration::from_secs(10)).await;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    fleet(&site, 200, "redfish://10.0.0.1", false).await;
    site.run();
    until(&site, 200, "available", Duration::from_secs(600)).await;
    let most = site.ironic.world().most_busy;
    assert!((10..=20).contains(&most), "{most} at a time");
}

/// Virtual media takes no slot.
#[tokio::test]
async fn hosts_with_virtual_media_are_not_limited() {
    let mut site = Site::prepare("media", Duration::from_secs(4)).await;
    site.settings.provisioning_limit = 1;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    fleet(&site, 6, "redfish-virtualmedia://10.0.0.1", false).await;
    site.run();
    until(&site, 6, "available", Duration::from_secs(200)).await;
    assert!(site.ironic.world().most_busy > 1);
}

/// The controller as the agent's own program, so that what it needs is its own: `cargo build --profile agent -p
/// foothold-agent` first, and `FOOTHOLD_AGENT` says where it is.
struct Program(tokio::process::Child);

impl Program {
    fn start(site: &Site) -> Self {
        let agent = std::env::var_os("FOOTHOLD_AGENT").expect("FOOTHOLD_AGENT: where the agent's program is");
        let mut command = tokio::process::Command::new(agent);
        command.args(["operator", "baremetalhost", "--workers", "16", "--namespace", &site.namespace]);
        command.arg("--kubeconfig").arg(site.settings.kubeconfig.as_ref().expect("a file"));
        command.arg("--ironic").arg(&site.settings.ironic.url);
        command.arg("--metrics-address").arg(site.settings.serve.expect("an address").to_string());
        Self(command.kill_on_drop(true).spawn().expect("started"))
    }

    fn of_kernel(&self, file: &str) -> String {
        fs_err::read_to_string(format!("/proc/{}/{file}", self.0.id().expect("running"))).expect("read")
    }

    /// A line of its status, as the kernel tells it: `VmHWM`, the most memory that it had; `VmRSS`, what it has.
    fn memory(&self, line: &str) -> String {
        let status = self.of_kernel("status");
        status.lines().find(|it| it.starts_with(line)).unwrap_or_default().to_owned()
    }

    /// Seconds of a processor that it has used (proc(5): `utime` and `stime`, in hundredths of a second).
    fn processor(&self) -> f64 {
        let stat = self.of_kernel("stat");
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|it| it.parse::<f64>().ok());
        ticks.sum::<f64>() / 100.0
    }
}

/// #3489, BMO-15: prints what a thousand hosts cost.
#[tokio::test]
#[ignore = "a benchmark of minutes"]
#[expect(clippy::print_stdout, reason = "what the benchmark is for")]
async fn a_thousand_hosts() {
    let _turn = TURN.lock().await;
    let hosts = 1000;
    let site = Site::prepare("thousand", Duration::from_secs(2)).await;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    fleet(&site, hosts, "redfish-virtualmedia://10.0.0.1", false).await;
    let before = writes(&site).await;
    let program = Program::start(&site);
    let took = until(&site, hosts, "available", Duration::from_secs(540)).await.as_secs_f64();
    let each = (writes(&site).await - before) / 1000.0;
    let (memory, processor) = (program.memory("VmHWM"), program.processor());
    println!(
        "{hosts} hosts available in {took:.0} s; controller {memory}, {processor:.0} s of a processor; {each:.1} API writes \
         per host"
    );
    assert!(each < 50.0, "{each}");
}

/// Prints what ten thousand hosts cost that need nothing.
#[tokio::test]
#[ignore = "a benchmark of minutes"]
#[expect(clippy::print_stdout, reason = "what the benchmark is for")]
async fn ten_thousand_hosts_at_rest() {
    let _turn = TURN.lock().await;
    let (hosts, rest) = (10_000, Duration::from_secs(120));
    let site = Site::prepare("rest", Duration::from_millis(50)).await;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    let program = Program::start(&site);
    fleet(&site, hosts, "redfish://10.0.0.1", true).await;
    let took = until(&site, hosts, "externally provisioned", Duration::from_secs(1800)).await.as_secs_f64();
    println!("{hosts} hosts registered and adopted {took:.0} s after the last was made; {}", program.memory("VmHWM"));
    // What has just been adopted is looked at again soon.
    tokio::time::sleep(rest).await;
    let (writes_before, asked_before, before) = (writes(&site).await, site.ironic.world().asked, program.processor());
    tokio::time::sleep(rest).await;
    let (writes, asked) = (writes(&site).await - writes_before, site.ironic.world().asked - asked_before);
    let processor = (program.processor() - before) / rest.as_secs_f64() * 100.0;
    println!(
        "{hosts} hosts at rest: {}, {processor:.1} % of a processor, {:.0} questions to Ironic a second, {writes} API \
         writes in {rest:?}",
        program.memory("VmRSS"),
        f64::from(asked) / rest.as_secs_f64()
    );
}

/// Requests that change something, as the API server counts them.
async fn writes(site: &Site) -> f64 {
    let (_, text) = site.api.health("/metrics").await.expect("asked");
    let firmware = ["hostfirmwaresettings", "hostfirmwarecomponents", "firmwareschemas"];
    let ours = [["baremetalhosts", "hardwaredata", "events", "secrets"].as_slice(), &firmware].concat();
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total")
            && ["POST", "PUT", "PATCH", "APPLY"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            && ours.iter().any(|resource| line.contains(&format!("resource=\"{resource}\"")))
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
