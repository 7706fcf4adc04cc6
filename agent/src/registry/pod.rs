//! `distribution` as a static pod: its manifest and its configuration. Pure text.

use agent_api::boot::MEDIUM;
use agent_api::release::MEDIUM_ROOT;

/// What the image's name begins with.
pub const IMAGE: &str = "foothold.dev/registry:";
/// File among the static pods.
pub const MANIFEST: &str = "foothold-registry.yaml";
/// Everything of the registry that is forgotten at power-off.
pub const RUN: &str = "/run/foothold/registry";
/// Folder of the socket: the user of the pod, and root.
pub const SOCKET_DIR: &str = "/run/foothold/registry/socket";
/// Socket on which it answers.
pub const SOCKET: &str = "/run/foothold/registry/socket/registry.sock";
/// Its configuration.
pub const CONFIG: &str = "/run/foothold/registry/config.yml";
/// Its storage.
pub const ROOT: &str = "/run/foothold/registry/root";
/// User and group of the pod.
pub const USER: u32 = 65532;

/// The configuration. `secret` signs the state of uploads that clients carry.
pub fn config(writable: bool, secret: &str) -> String {
    let read_only = !writable;
    format!(
        "version: 0.1
log: {{ level: warn, accesslog: {{ disabled: true }} }}
storage:
  filesystem: {{ rootdirectory: /var/lib/registry }}
  delete: {{ enabled: {writable} }}
  maintenance:
    uploadpurging: {{ enabled: {writable}, age: 168h, interval: 24h, dryrun: false }}
    readonly: {{ enabled: {read_only} }}
http:
  net: unix
  addr: {SOCKET}
  relativeurls: true
  secret: {secret}
health: {{ storagedriver: {{ enabled: false }} }}
"
    )
}

/// The manifest. It has no probe: the agent asks the registry itself, which starts no program each time.
pub fn manifest(image: &str, writable: bool) -> String {
    let read_only = !writable;
    let store = format!("{MEDIUM}/{MEDIUM_ROOT}/store");
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: registry
  namespace: kube-system
  labels: {{ component: registry, tier: foothold }}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  securityContext:
    runAsUser: {USER}
    runAsGroup: {USER}
    runAsNonRoot: true
    seccompProfile: {{ type: RuntimeDefault }}
  containers:
  - name: registry
    image: {image}
    imagePullPolicy: Never
    args: [ serve, {CONFIG} ]
    env:
    - {{ name: OTEL_TRACES_EXPORTER, value: none }}
    - {{ name: GOMEMLIMIT, value: 96MiB }}
    resources: {{ requests: {{ cpu: 10m, memory: 32Mi }} }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {{ drop: [ ALL ] }}
    volumeMounts:
    - {{ name: config, mountPath: {CONFIG}, readOnly: true }}
    - {{ name: socket, mountPath: {SOCKET_DIR} }}
    - {{ name: root, mountPath: /var/lib/registry, readOnly: {read_only} }}
    - {{ name: store, mountPath: {store}, readOnly: true }}
  volumes:
  - {{ name: config, hostPath: {{ path: {CONFIG}, type: File }} }}
  - {{ name: socket, hostPath: {{ path: {SOCKET_DIR}, type: Directory }} }}
  - {{ name: root, hostPath: {{ path: {ROOT}, type: Directory }} }}
  - {{ name: store, hostPath: {{ path: {store}, type: Directory }} }}
"
    )
}

#[cfg(test)]
mod tests {
    use super::{config, manifest};

    #[test]
    fn the_pod_and_its_configuration() {
        let text = format!("{}---\n{}", config(true, "s3"), manifest("foothold.dev/registry:3.1.2", true));
        insta::assert_snapshot!(text);
        assert!(config(false, "s3").contains("readonly: { enabled: true }"));
        assert!(manifest("a", false).contains("mountPath: /var/lib/registry, readOnly: true"));
    }
}
