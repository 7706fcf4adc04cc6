use foothold::cli::{Attach, MachineFirmware, Network};
use foothold_tests::{Appliance, How};
use std::time::Duration;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let boots: usize = args.get(1).map_or(2, |s| s.parse().unwrap());
    let out = args.get(2).cloned().unwrap_or("/tmp/lab".into());
    let appliance = Appliance::get();
    let dir = tempfile::tempdir().unwrap();
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    let _ = (Attach::Disk, MachineFirmware::Bios);
    for n in 0..boots {
        let mut m = appliance.boot(how);
        let ready = m.until_ready();
        println!("boot {n} ready {} {}", ready.t, serde_json::to_string(&ready.detail).unwrap());
        let c = m.client();
        std::fs::write(format!("{out}/events-{n}.json"), c.get("/api/v1/timeline")).unwrap();
        std::thread::sleep(Duration::from_secs(8));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let web = m.session.web().unwrap();
        let token = m.session.token().to_owned();
        let bytes = runtime.block_on(async {
            reqwest::Client::builder()
                .danger_accept_invalid_certs(true)
                .no_proxy()
                .build()
                .unwrap()
                .get(format!("{web}/api/v1/support-bundle"))
                .bearer_auth(token)
                .send()
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap()
        });
        std::fs::write(format!("{out}/bundle-{n}.tgz"), &bytes).unwrap();
        m.session.vm.kill().unwrap();
    }
}
