//! Every port of the box, declared once: the firewall is made from this list.

use serde::{Deserialize, Serialize};

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// When a port is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenWhen {
    /// From the first second.
    Always,
    /// When Site gives ssh keys.
    SshKeys,
    /// When the release declares that time is served.
    NtpServe,
    /// When the release declares that servers are provisioned.
    Provisioning,
}

/// One port that others may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Number.
    pub number: u16,
    /// Transport.
    pub protocol: Protocol,
    /// Who answers there.
    pub name: &'static str,
    /// Condition.
    pub when: OpenWhen,
}

/// Web page, REST and event stream of the agent.
pub const WEB: u16 = 8443;
/// Files of the release and of uploads over HTTP.
pub const CONTENT: u16 = 6180;
/// REST of the Binary Provisioning Agent.
pub const BPA: u16 = 9015;
/// Ironic's API, behind the agent.
pub const IRONIC: u16 = 6385;
/// Ironic itself, on the loopback address.
pub const IRONIC_LOOPBACK: u16 = 6384;
/// The Kubernetes API.
pub const KUBERNETES_API: u16 = 6443;

/// The registry of the box: what the release carries, and uploads. The box's own containerd takes every image from
/// here that is not unpacked on the box, whatever its registry.
pub const REGISTRY: u16 = 5000;

/// The declared ports.
pub const PORTS: &[Port] = &[
    Port { number: WEB, protocol: Protocol::Tcp, name: "agent", when: OpenWhen::Always },
    Port { number: BPA, protocol: Protocol::Tcp, name: "uploads", when: OpenWhen::Always },
    Port { number: KUBERNETES_API, protocol: Protocol::Tcp, name: "kube-apiserver", when: OpenWhen::Always },
    Port { number: REGISTRY, protocol: Protocol::Tcp, name: "registry", when: OpenWhen::Always },
    Port { number: CONTENT, protocol: Protocol::Tcp, name: "content", when: OpenWhen::Always },
    Port { number: IRONIC, protocol: Protocol::Tcp, name: "ironic", when: OpenWhen::Provisioning },
    Port { number: 22, protocol: Protocol::Tcp, name: "ssh", when: OpenWhen::SshKeys },
    Port { number: 67, protocol: Protocol::Udp, name: "dhcp", when: OpenWhen::Provisioning },
    Port { number: 69, protocol: Protocol::Udp, name: "tftp", when: OpenWhen::Provisioning },
    Port { number: 123, protocol: Protocol::Udp, name: "ntp", when: OpenWhen::NtpServe },
];
