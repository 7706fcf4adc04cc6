//! What the pod of `distribution` reads and writes: its places, its user, its configuration. Pure text.

/// What the image's name begins with.
pub const IMAGE: &str = "foothold.dev/registry:";
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

#[cfg(test)]
mod tests {
    use super::config;

    #[test]
    fn the_configuration() {
        insta::assert_snapshot!(config(true, "s3"));
        assert!(config(false, "s3").contains("readonly: { enabled: true }"));
    }
}
