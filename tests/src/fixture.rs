//! Values that tests start from; each test changes only what it is about.

use std::path::Path;

use agent_api::release::{Kubernetes, Release};

/// A release with nothing in it.
pub fn release() -> Release {
    Release {
        api_version: "foothold.dev/v1".to_owned(),
        kind: "Release".to_owned(),
        name: "edge".to_owned(),
        version: "1.0.0".to_owned(),
        architecture: "amd64".to_owned(),
        built: 1_700_000_000,
        development_key: true,
        kubernetes: Kubernetes {
            version: "v1.36.4".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            service_cidr: "10.96.0.0/12".to_owned(),
        },
        ..Release::default()
    }
}

/// What the agent writes, as its own tests keep it (insta's snapshots). `folder` is below `agent/src` and has the folder
/// `snapshots`; `name` is that of the snapshot, with its modules below that folder.
///
/// # Panics
/// Where there is none.
pub fn kept_by_agent(folder: &str, name: &str) -> String {
    let file = format!("foothold_agent__{}__{name}.snap", folder.replace('/', "__"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/src").join(folder).join("snapshots").join(file);
    let text = fs_err::read_to_string(path).expect("a snapshot");
    text.splitn(3, "---\n").nth(2).expect("what was written").to_owned()
}
