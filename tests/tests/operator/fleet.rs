//! Many hosts at a time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::site::Site;

/// MAC addresses differ; BMCs may be the same, since the fake does not ask them.
async fn fleet(site: &Site, hosts: usize, address: &str) {
    for number in 0..hosts {
        let mac = format!("52:54:01:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        let bmc = json!({"address": address, "credentialsName": "all-bmc"});
        site.host_only(&format!("h{number}"), json!({"bootMACAddress": mac, "bmc": bmc})).await;
    }
}

/// States of all hosts of the namespace.
async fn states(site: &Site) -> Vec<String> {
    let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts", site.namespace);
    let all = site.api.get(&path).await.expect("asked").expect("a list");
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let state = |host: &Value| host["status"]["provisioning"]["state"].as_str().unwrap_or_default().to_owned();
    all.iter().map(state).collect()
}

async fn until_available(site: &Site, hosts: usize, within: Duration) -> Duration {
    let begun = Instant::now();
    loop {
        let states = states(site).await;
        if states.len() == hosts && states.iter().all(|state| state == "available") {
            return begun.elapsed();
        }
        if begun.elapsed() > within {
            let left: Vec<&String> = states.iter().filter(|state| *state != "available").collect();
            panic!("{} of {hosts} are not available: {left:?}", left.len());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// #905, #725, BMO-14: counted where it matters, at Ironic.
#[tokio::test]
async fn the_provisioning_limit_is_never_exceeded() {
    // Long enough that slots, not the machine that the test runs on, are what there is too little of.
    let mut site = Site::prepare("limit", Duration::from_secs(10)).await;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    fleet(&site, 200, "redfish://10.0.0.1").await;
    site.run();
    until_available(&site, 200, Duration::from_secs(600)).await;
    let most = site.ironic.world().most_busy;
    assert!((10..=20).contains(&most), "{most} at a time");
}

/// Virtual media takes no slot.
#[tokio::test]
async fn hosts_with_virtual_media_are_not_limited() {
    let mut site = Site::prepare("media", Duration::from_secs(4)).await;
    site.settings.provisioning_limit = 1;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    fleet(&site, 6, "redfish-virtualmedia://10.0.0.1").await;
    site.run();
    until_available(&site, 6, Duration::from_secs(200)).await;
    assert!(site.ironic.world().most_busy > 1);
}

/// #3489, BMO-15: prints what a thousand hosts cost. The controller is the agent's own program, so that its memory is
/// its own: `cargo build --profile agent -p foothold-agent` first, and `FOOTHOLD_AGENT` says where it is.
#[tokio::test]
#[ignore = "a benchmark of minutes"]
async fn a_thousand_hosts() {
    let hosts = 1000;
    let site = Site::prepare("thousand", Duration::from_secs(2)).await;
    site.secret("all-bmc", &json!({"username": "admin", "password": crate::ironic::PASSWORD})).await;
    fleet(&site, hosts, "redfish-virtualmedia://10.0.0.1").await;
    let before = writes(&site).await;
    let agent = std::env::var_os("FOOTHOLD_AGENT").expect("FOOTHOLD_AGENT: where the agent's program is");
    let mut command = tokio::process::Command::new(agent);
    command.args(["operator", "baremetalhost", "--workers", "16", "--namespace", &site.namespace]);
    command.arg("--kubeconfig").arg(site.settings.kubeconfig.as_ref().expect("a file"));
    command.arg("--ironic").arg(&site.settings.ironic.url);
    command.arg("--metrics-address").arg(site.settings.serve.expect("an address").to_string());
    let mut process = command.kill_on_drop(true).spawn().expect("started");
    let took = until_available(&site, hosts, Duration::from_secs(540)).await;
    let status = fs_err::read_to_string(format!("/proc/{}/status", process.id().expect("running"))).expect("read");
    let memory = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned();
    let each = (writes(&site).await - before) / 1000.0;
    process.kill().await.expect("ended");
    #[expect(clippy::print_stdout, reason = "what the benchmark is for")]
    {
        println!(
            "{hosts} hosts available in {:.0} s; controller {memory}; {each:.1} API writes per host",
            took.as_secs_f64()
        );
    }
    assert!(each < 50.0, "{each}");
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
