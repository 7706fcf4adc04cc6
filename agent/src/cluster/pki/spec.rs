//! Which certificates there are and what stands in them: the table of kubeadm's `certs` phases.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose,
    IsCa, KeyUsagePurpose, SanType, SerialNumber,
};
use x509_parser::extensions::GeneralName;

use super::PkiError;
use crate::cluster::{DNS_DOMAIN, Node};

/// Object identifier of the basic constraints extension (RFC 5280, 4.2.1.9).
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];

/// Who signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// `ca`.
    Cluster,
    /// `front-proxy-ca`.
    FrontProxy,
    /// `etcd/ca`.
    Etcd,
}

impl Authority {
    /// File below the directory of certificates, without ending.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Cluster => "ca",
            Self::FrontProxy => "front-proxy-ca",
            Self::Etcd => "etcd/ca",
        }
    }

    /// Its common name, which is its DNS name too.
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::Cluster => "kubernetes",
            Self::FrontProxy => "front-proxy-ca",
            Self::Etcd => "etcd-ca",
        }
    }
}

/// Who a certificate is for: Kubernetes reads O as group and CN as user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// O.
    pub organization: Option<&'static str>,
    /// CN.
    pub common_name: String,
}

impl Subject {
    /// Without a group.
    pub fn user(common_name: impl Into<String>) -> Self {
        Self { organization: None, common_name: common_name.into() }
    }

    /// With a group.
    pub fn member(organization: &'static str, common_name: impl Into<String>) -> Self {
        Self { organization: Some(organization), common_name: common_name.into() }
    }

    /// As `O=a, CN=b`.
    pub fn text(&self) -> String {
        let organization = self.organization.map(|o| format!("O={o}, ")).unwrap_or_default();
        format!("{organization}CN={}", self.common_name)
    }
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// To answer.
    Server,
    /// To ask.
    Client,
    /// etcd's members do both.
    Both,
}

/// One leaf certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafSpec {
    /// File below the directory of certificates, without ending.
    pub file: String,
    /// Who signs.
    pub authority: Authority,
    /// Who it is for.
    pub subject: Subject,
    /// What for.
    pub usage: Usage,
    /// DNS names, in kubeadm's order.
    pub dns: Vec<String>,
    /// Addresses, in kubeadm's order.
    pub addresses: Vec<IpAddr>,
}

impl LeafSpec {
    /// A certificate for a client of the API server, such as those in kubeconfigs.
    pub fn client(subject: Subject) -> Self {
        Self::of("", Authority::Cluster, subject, Usage::Client)
    }

    fn of(file: &str, authority: Authority, subject: Subject, usage: Usage) -> Self {
        Self { file: file.to_owned(), authority, subject, usage, dns: Vec::new(), addresses: Vec::new() }
    }

    /// DNS names and addresses, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.dns.clone();
        names.extend(self.addresses.iter().map(IpAddr::to_string));
        names.sort();
        names
    }
}

/// Every leaf below `/etc/kubernetes/pki`.
pub fn leaves(node: &Node) -> Vec<LeafSpec> {
    let client = |file, authority, name| LeafSpec::of(file, authority, Subject::user(name), Usage::Client);
    vec![
        api_server(node),
        client("apiserver-kubelet-client", Authority::Cluster, "kube-apiserver-kubelet-client"),
        client("front-proxy-client", Authority::FrontProxy, "front-proxy-client"),
        etcd_member("etcd/server", node),
        etcd_member("etcd/peer", node),
        client("etcd/healthcheck-client", Authority::Etcd, "kube-etcd-healthcheck-client"),
        client("apiserver-etcd-client", Authority::Etcd, "kube-apiserver-etcd-client"),
    ]
}

fn api_server(node: &Node) -> LeafSpec {
    let subject = Subject::user("kube-apiserver");
    let mut spec = LeafSpec::of("apiserver", Authority::Cluster, subject, Usage::Server);
    spec.dns = vec![
        node.name.clone(),
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        format!("kubernetes.default.svc.{DNS_DOMAIN}"),
    ];
    spec.addresses = vec![node.service_address, node.advertise];
    for address in &node.site_addresses {
        if !spec.addresses.contains(address) {
            spec.addresses.push(*address);
        }
    }
    spec
}

fn etcd_member(file: &str, node: &Node) -> LeafSpec {
    let mut spec = LeafSpec::of(file, Authority::Etcd, Subject::user(&node.name), Usage::Both);
    spec.dns = vec![node.name.clone(), "localhost".to_owned()];
    spec.addresses = vec![node.advertise, IpAddr::from([127, 0, 0, 1]), IpAddr::from(1_u128.to_be_bytes())];
    spec
}

/// Parameters of an authority.
pub fn authority_params(authority: Authority, span: (u64, u64)) -> CertificateParams {
    let mut params = base(&Subject::user(authority.common_name()), span);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages.push(KeyUsagePurpose::KeyCertSign);
    if let Ok(name) = authority.common_name().try_into() {
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    params
}

/// Parameters of a leaf.
pub fn leaf_params(spec: &LeafSpec, span: (u64, u64)) -> Result<CertificateParams, PkiError> {
    let mut params = base(&spec.subject, span);
    params.use_authority_key_identifier_extension = true;
    // `IsCa::ExplicitNoCa` would add a subject key identifier, which kubeadm's leaves do not have.
    let mut not_ca = CustomExtension::from_oid_content(BASIC_CONSTRAINTS, vec![0x30, 0x00]);
    not_ca.set_criticality(true);
    params.custom_extensions.push(not_ca);
    params.extended_key_usages = match spec.usage {
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    for name in &spec.dns {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(PkiError::Crypto)?));
    }
    params.subject_alt_names.extend(spec.addresses.iter().copied().map(SanType::IpAddress));
    Ok(params)
}

/// Authority and leaf of the pair the kubelet would make for itself: `<node>-ca@<secs>` and `<node>@<secs>`.
pub fn kubelet_serving_params(
    node: &str,
    span: (u64, u64),
) -> Result<(CertificateParams, CertificateParams), PkiError> {
    let mut authority = base(&Subject::user(format!("{node}-ca@{}", span.0)), span);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages.push(KeyUsagePurpose::KeyCertSign);
    let mut spec = LeafSpec::client(Subject::user(format!("{node}@{}", span.0)));
    spec.usage = Usage::Server;
    spec.dns = vec![node.to_owned()];
    Ok((authority, leaf_params(&spec, span)?))
}

fn base(subject: &Subject, (from, to): (u64, u64)) -> CertificateParams {
    let mut params = CertificateParams::default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + std::time::Duration::from_secs(from);
    params.not_after = epoch + std::time::Duration::from_secs(to);
    params.distinguished_name = distinguished_name(subject);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    // 63 random bits, positive and never zero, as kubeadm draws them.
    let serial = (rand::random::<u64>() >> 1).max(1);
    params.serial_number = Some(SerialNumber::from(serial));
    params
}

fn distinguished_name(subject: &Subject) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = subject.organization {
        name.push(DnType::OrganizationName, text_value(organization));
    }
    name.push(DnType::CommonName, text_value(&subject.common_name));
    name
}

/// Go writes a `PrintableString` where the characters allow it.
fn text_value(text: &str) -> DnValue {
    text.try_into().map_or_else(|_| DnValue::Utf8String(text.to_owned()), DnValue::PrintableString)
}

/// A DNS name or address of a certificate as text.
pub fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
