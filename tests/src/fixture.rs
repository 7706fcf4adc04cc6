//! Values that tests start from; each test changes only what it is about.

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
