//! What kubespray asks for, and by which variables: a table of facts.
//!
//! Source: kubespray, `roles/kubespray_defaults/defaults/main/download.yml` (`*_download_url`, `*_version`, `*_checksum`,
//! `*_image_repo`, `downloads`), `contrib/offline` and `inventory/sample/group_vars/all/offline.yml`.

/// What a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A program as it is.
    Program(&'static str),
    /// A packed archive: path in it, with `{version}`, and the program.
    Archive(&'static [(&'static str, &'static str)]),
}

/// A file that kubespray downloads and that a release may carry.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// The beginning of its variables' names: `<name>_download_url`.
    pub name: &'static str,
    /// Its address without the scheme; `{version}` is the component's, without `v`.
    pub address: &'static str,
    /// Variable with the version.
    pub version: &'static str,
    /// Variable with the checksum.
    pub checksum: &'static str,
    /// The module set that has its version. The version of Kubernetes comes from the definition.
    pub set: &'static str,
    /// What it is made of.
    pub holds: Holds,
    /// What else an original has, which this one lacks: its name, what it is for, and whether kubespray fails without it.
    pub lacks: &'static [(&'static str, &'static str, bool)],
}

/// The downloads that a release may carry.
pub const DOWNLOADS: &[Download] = &[
    Download {
        name: "kubelet",
        address: "dl.k8s.io/release/v{version}/bin/linux/amd64/kubelet",
        version: "kube_version",
        checksum: "kubelet_binary_checksum",
        set: "kubernetes",
        holds: Holds::Program("kubelet"),
        lacks: &[],
    },
    Download {
        name: "kubectl",
        address: "dl.k8s.io/release/v{version}/bin/linux/amd64/kubectl",
        version: "kube_version",
        checksum: "kubectl_binary_checksum",
        set: "kubernetes",
        holds: Holds::Program("kubectl"),
        lacks: &[],
    },
    Download {
        name: "kubeadm",
        address: "dl.k8s.io/release/v{version}/bin/linux/amd64/kubeadm",
        version: "kube_version",
        checksum: "kubeadm_binary_checksum",
        set: "kubernetes",
        holds: Holds::Program("kubeadm"),
        lacks: &[],
    },
    Download {
        name: "etcd",
        address: "github.com/etcd-io/etcd/releases/download/v{version}/etcd-v{version}-linux-amd64.tar.gz",
        version: "etcd_version",
        checksum: "etcd_binary_checksum",
        set: "etcd",
        holds: Holds::Archive(&[
            ("etcd-v{version}-linux-amd64/etcd", "server"),
            ("etcd-v{version}-linux-amd64/etcdctl", "etcdctl"),
        ]),
        lacks: &[("etcdutl", "the role `etcdctl_etcdutl` copies it out of this archive", true)],
    },
    Download {
        name: "cni",
        address: "github.com/containernetworking/plugins/releases/download/v{version}/cni-plugins-linux-amd64-v{version}.tgz",
        version: "cni_version",
        checksum: "cni_binary_checksum",
        set: "cni",
        holds: Holds::Archive(&[
            ("./bridge", "bridge"),
            ("./host-local", "host-local"),
            ("./loopback", "loopback"),
            ("./portmap", "portmap"),
        ]),
        lacks: &[(
            "bandwidth, dhcp, dummy, firewall, host-device, ipvlan, macvlan, ptp, sbr, static, tap, tuning, vlan, vrf",
            "only configurations of networks that name them need them; flannel's does not",
            false,
        )],
    },
    Download {
        name: "crictl",
        address: "github.com/kubernetes-sigs/cri-tools/releases/download/v{version}/crictl-v{version}-linux-amd64.tar.gz",
        version: "crictl_version",
        checksum: "crictl_binary_checksum",
        set: "cri-tools",
        holds: Holds::Archive(&[("crictl", "crictl")]),
        lacks: &[],
    },
    Download {
        name: "runc",
        address: "github.com/opencontainers/runc/releases/download/v{version}/runc.amd64",
        version: "runc_version",
        checksum: "runc_binary_checksum",
        set: "runc",
        holds: Holds::Program("runc"),
        lacks: &[],
    },
    Download {
        name: "containerd",
        address: "github.com/containerd/containerd/releases/download/v{version}/containerd-{version}-linux-amd64.tar.gz",
        version: "containerd_version",
        // `containerd_checksum` is made of it.
        checksum: "containerd_archive_checksum",
        set: "containerd",
        holds: Holds::Archive(&[
            ("bin/containerd", "containerd"),
            ("bin/containerd-shim-runc-v2", "containerd-shim-runc-v2"),
            ("bin/ctr", "ctr"),
        ]),
        lacks: &[],
    },
    Download {
        name: "helm",
        address: "get.helm.sh/helm-v{version}-linux-amd64.tar.gz",
        version: "helm_version",
        checksum: "helm_archive_checksum",
        set: "helm",
        holds: Holds::Archive(&[("linux-amd64/helm", "helm")]),
        lacks: &[],
    },
];

/// Settings of kubespray, each `variable: value`.
pub type Switch = &'static [(&'static str, &'static str)];

/// Something that kubespray may ask for and that no release can carry.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// What kubespray calls it in `downloads`.
    pub name: &'static str,
    /// Its address without the scheme, or its image without the tag; `{...}` are kubespray's own variables.
    pub address: &'static str,
    /// Whether it is an image.
    pub image: bool,
    /// The variables that switch it off; empty if nothing does.
    pub switch: Switch,
}

const fn file(name: &'static str, address: &'static str, switch: Switch) -> Absent {
    Absent { name, address, image: false, switch }
}

const fn image(name: &'static str, address: &'static str, switch: Switch) -> Absent {
    Absent { name, address, image: true, switch }
}

/// The network is the release's flannel, which is applied afterwards.
const NETWORK: Switch = &[("kube_network_plugin", "cni")];
const MANAGER: Switch = &[("container_manager", "containerd")];
const CILIUM: Switch = &[("kube_network_plugin", "cni"), ("cilium_deploy_additionally", "false")];
const HUBBLE: Switch = &[("cilium_enable_hubble", "false")];
const GVISOR: Switch = &[("gvisor_enabled", "false")];
const ARGOCD: Switch = &[("argocd_enabled", "false")];
const INGRESS: Switch = &[("ingress_nginx_enabled", "false")];
const CERT_MANAGER: Switch = &[("cert_manager_enabled", "false")];
const CSI: Switch = &[("cinder_csi_enabled", "false"), ("aws_ebs_csi_enabled", "false")];
const NETCHECK: Switch = &[("deploy_netchecker", "false")];
const DASHBOARD: Switch = &[("dashboard_enabled", "false")];
const METALLB: Switch = &[("metallb_enabled", "false"), ("metallb_speaker_enabled", "false")];
const NO_PROXY_ON_NODES: Switch = &[("loadbalancer_apiserver_localhost", "false")];

/// What kubespray may ask for and no release can carry.
pub const ABSENT: &[Absent] = &[
    file(
        "nerdctl",
        "github.com/containerd/nerdctl/releases/download/v{nerdctl_version}/nerdctl-{nerdctl_version}-linux-amd64.tar.gz",
        &[],
    ),
    file(
        "calicoctl",
        "github.com/projectcalico/calico/releases/download/v{calico_ctl_version}/calicoctl-linux-amd64",
        NETWORK,
    ),
    file("calico_crds", "github.com/projectcalico/calico/archive/v{calico_version}.tar.gz", NETWORK),
    file(
        "ciliumcli",
        "github.com/cilium/cilium-cli/releases/download/v{cilium_cli_version}/cilium-linux-amd64.tar.gz",
        CILIUM,
    ),
    file("crio", "storage.googleapis.com/cri-o/artifacts/cri-o.amd64.v{crio_version}.tar.gz", MANAGER),
    file(
        "cri_dockerd",
        "github.com/Mirantis/cri-dockerd/releases/download/v{cri_dockerd_version}/cri-dockerd-{cri_dockerd_version}.amd64.tgz",
        MANAGER,
    ),
    file("skopeo", "github.com/lework/skopeo-binary/releases/download/v{skopeo_version}/skopeo-linux-amd64", MANAGER),
    file(
        "crun",
        "github.com/containers/crun/releases/download/{crun_version}/crun-{crun_version}-linux-amd64",
        &[("crun_enabled", "false")],
    ),
    file(
        "youki",
        "github.com/youki-dev/youki/releases/download/v{youki_version}/youki-{youki_version}-x86_64-gnu.tar.gz",
        &[("youki_enabled", "false")],
    ),
    file(
        "kata_containers",
        "github.com/kata-containers/kata-containers/releases/download/{kata_containers_version}/kata-static-{kata_containers_version}-amd64.tar.xz",
        &[("kata_containers_enabled", "false")],
    ),
    file("gvisor_runsc", "storage.googleapis.com/gvisor/releases/release/{gvisor_version}/x86_64/runsc", GVISOR),
    file(
        "gvisor_containerd_shim",
        "storage.googleapis.com/gvisor/releases/release/{gvisor_version}/x86_64/containerd-shim-runsc-v1",
        GVISOR,
    ),
    file("yq", "github.com/mikefarah/yq/releases/download/v{yq_version}/yq_linux_amd64", ARGOCD),
    file(
        "argocd_install",
        "raw.githubusercontent.com/argoproj/argo-cd/v{argocd_version}/manifests/install.yaml",
        ARGOCD,
    ),
    file(
        "gateway_api_crds",
        "github.com/kubernetes-sigs/gateway-api/releases/download/v{gateway_api_version}/{gateway_api_channel}-install.yaml",
        &[("gateway_api_enabled", "false")],
    ),
    file(
        "prometheus_operator_crds",
        "github.com/prometheus-operator/prometheus-operator/releases/download/v{prometheus_operator_crds_version}/stripped-down-crds.yaml",
        &[("prometheus_operator_crds_enabled", "false")],
    ),
    image("etcd", "quay.io/coreos/etcd", &[("etcd_deployment_type", "host")]),
    image("flannel", "docker.io/flannel/flannel", NETWORK),
    image("flannel_init", "docker.io/flannel/flannel-cni-plugin", NETWORK),
    image("calico_node", "quay.io/calico/node", NETWORK),
    image("calico_cni", "quay.io/calico/cni", NETWORK),
    image("calico_policy", "quay.io/calico/kube-controllers", NETWORK),
    image("calico_typha", "quay.io/calico/typha", &[("typha_enabled", "false")]),
    image("calico_apiserver", "quay.io/calico/apiserver", &[("calico_apiserver_enabled", "false")]),
    image("cilium", "quay.io/cilium/cilium", CILIUM),
    image("cilium_operator", "quay.io/cilium/operator", CILIUM),
    image("cilium_hubble_relay", "quay.io/cilium/hubble-relay", HUBBLE),
    image("cilium_hubble_certgen", "quay.io/cilium/certgen", HUBBLE),
    image("cilium_hubble_ui", "quay.io/cilium/hubble-ui", HUBBLE),
    image("cilium_hubble_ui_backend", "quay.io/cilium/hubble-ui-backend", HUBBLE),
    image("cilium_hubble_envoy", "quay.io/cilium/cilium-envoy", HUBBLE),
    image("kube_ovn", "docker.io/kubeovn/kube-ovn", NETWORK),
    image("kube_router", "docker.io/cloudnativelabs/kube-router", NETWORK),
    image("multus", "ghcr.io/k8snetworkplumbingwg/multus-cni", &[("kube_network_plugin_multus", "false")]),
    image("kube-vip", "ghcr.io/kube-vip/kube-vip", &[("kube_vip_enabled", "false")]),
    image("nginx", "docker.io/library/nginx", NO_PROXY_ON_NODES),
    image("haproxy", "docker.io/library/haproxy", NO_PROXY_ON_NODES),
    image("nodelocaldns", "registry.k8s.io/dns/k8s-dns-node-cache", &[("enable_nodelocaldns", "false")]),
    image(
        "dnsautoscaler",
        "registry.k8s.io/cpa/cluster-proportional-autoscaler",
        &[("enable_dns_autoscaler", "false")],
    ),
    image("registry", "docker.io/library/registry", &[("registry_enabled", "false")]),
    image("metrics_server", "registry.k8s.io/metrics-server/metrics-server", &[("metrics_server_enabled", "false")]),
    image(
        "local_volume_provisioner",
        "registry.k8s.io/sig-storage/local-volume-provisioner",
        &[("local_volume_provisioner_enabled", "false")],
    ),
    image(
        "local_path_provisioner",
        "docker.io/rancher/local-path-provisioner",
        &[("local_path_provisioner_enabled", "false")],
    ),
    image("ingress_nginx_controller", "registry.k8s.io/ingress-nginx/controller", INGRESS),
    image("ingress_alb_controller", "docker.io/amazon/aws-alb-ingress-controller", &[("ingress_alb_enabled", "false")]),
    image("cert_manager_controller", "quay.io/jetstack/cert-manager-controller", CERT_MANAGER),
    image("cert_manager_cainjector", "quay.io/jetstack/cert-manager-cainjector", CERT_MANAGER),
    image("cert_manager_webhook", "quay.io/jetstack/cert-manager-webhook", CERT_MANAGER),
    image("netcheck_server", "docker.io/mirantis/k8s-netchecker-server", NETCHECK),
    image("netcheck_agent", "docker.io/mirantis/k8s-netchecker-agent", NETCHECK),
    image("csi_attacher", "registry.k8s.io/sig-storage/csi-attacher", CSI),
    image("csi_provisioner", "registry.k8s.io/sig-storage/csi-provisioner", CSI),
    image("csi_snapshotter", "registry.k8s.io/sig-storage/csi-snapshotter", CSI),
    image("csi_resizer", "registry.k8s.io/sig-storage/csi-resizer", CSI),
    image("csi_node_driver_registrar", "registry.k8s.io/sig-storage/csi-node-driver-registrar", CSI),
    image(
        "snapshot_controller",
        "registry.k8s.io/sig-storage/snapshot-controller",
        &[("csi_snapshot_controller_enabled", "false")],
    ),
    image("cinder_csi_plugin", "registry.k8s.io/provider-os/cinder-csi-plugin", CSI),
    image("aws_ebs_csi_plugin", "docker.io/amazon/aws-ebs-csi-driver", CSI),
    image("dashboard", "docker.io/kubernetesui/dashboard", DASHBOARD),
    image("dashboard_metrics_scrapper", "docker.io/kubernetesui/metrics-scraper", DASHBOARD),
    image("metallb_speaker", "quay.io/metallb/speaker", METALLB),
    image("metallb_controller", "quay.io/metallb/controller", METALLB),
];

/// An image that kubespray runs on every cluster.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What its reference begins with, up to the tag.
    pub repository: &'static str,
    /// Variable with its version, and what the tag has before it.
    pub version: Option<(&'static str, &'static str)>,
}

/// The images of every cluster; those without a variable have Kubernetes' version.
pub const IMAGES: &[Wanted] = &[
    Wanted { repository: "registry.k8s.io/kube-apiserver", version: None },
    Wanted { repository: "registry.k8s.io/kube-controller-manager", version: None },
    Wanted { repository: "registry.k8s.io/kube-proxy", version: None },
    Wanted { repository: "registry.k8s.io/kube-scheduler", version: None },
    Wanted { repository: "registry.k8s.io/coredns/coredns", version: Some(("coredns_version", "v")) },
    Wanted { repository: "registry.k8s.io/pause", version: Some(("pod_infra_version", "")) },
];

/// The network that is applied after kubespray ran.
pub const FLANNEL: &str = "ghcr.io/flannel-io/flannel";
