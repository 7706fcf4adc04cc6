//! Ironic as a static pod: its manifest. Pure text.

use agent_api::ports;

use super::{RUN, STATE};

/// What the image's name begins with.
pub const IMAGE: &str = "foothold.dev/ironic:";
/// File among the static pods.
pub const MANIFEST: &str = "foothold-ironic.yaml";
/// User and group of the pod.
pub const USER: u32 = 65531;

/// The manifest. Another `generation` is another pod: Ironic reads its configuration, its certificate and the state of
/// its database only when it starts.
///
/// Its probes ask what needs no password, and give it the time that Python needs on a slow machine.
pub fn manifest(image: &str, generation: &str) -> String {
    let port = ports::IRONIC;
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: ironic
  namespace: kube-system
  labels: {{ component: ironic, tier: foothold }}
  annotations: {{ foothold.dev/generation: \"{generation}\" }}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 30
  securityContext:
    runAsUser: {USER}
    runAsGroup: {USER}
    runAsNonRoot: true
    seccompProfile: {{ type: RuntimeDefault }}
  containers:
  - name: ironic
    image: {image}
    imagePullPolicy: Never
    args: [ --config-file, {RUN}/ironic.conf ]
    env:
    - {{ name: HOME, value: {STATE}/tmp }}
    resources: {{ requests: {{ cpu: 50m, memory: 192Mi }}, limits: {{ memory: 1Gi }} }}
    startupProbe:
      httpGet: {{ scheme: HTTPS, path: /, port: {port} }}
      periodSeconds: 5
      timeoutSeconds: 10
      failureThreshold: 120
    livenessProbe:
      httpGet: {{ scheme: HTTPS, path: /, port: {port} }}
      periodSeconds: 30
      timeoutSeconds: 20
      failureThreshold: 6
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {{ drop: [ ALL ] }}
    volumeMounts:
    - {{ name: run, mountPath: {RUN}, readOnly: true }}
    - {{ name: authority, mountPath: /etc/ssl/certs/ca-certificates.crt, readOnly: true }}
    - {{ name: state, mountPath: {STATE} }}
    - {{ name: tmp, mountPath: /tmp }}
  volumes:
  - {{ name: run, hostPath: {{ path: {RUN}, type: Directory }} }}
  - {{ name: authority, hostPath: {{ path: {RUN}/ca.crt, type: File }} }}
  - {{ name: state, hostPath: {{ path: {STATE}, type: Directory }} }}
  - {{ name: tmp, emptyDir: {{ sizeLimit: 64Mi }} }}
"
    )
}

#[cfg(test)]
mod tests {
    use super::manifest;

    #[test]
    fn the_pod() {
        insta::assert_snapshot!(manifest("foothold.dev/ironic:29.0.5", "0123456789abcdef"));
    }
}
