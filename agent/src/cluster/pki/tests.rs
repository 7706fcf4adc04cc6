use std::net::IpAddr;
use std::path::Path;

use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    Authority, DAY, FoundCertificate, LeafSpec, RENEW_BEFORE, Reason, Subject, Validity, authorities, decide,
    inspect_leaf,
};
use super::{inspect, issue, keys, kubelet_serving, leaves, leaves_on_disk};
use crate::cluster::Node;

const BUILT: u64 = 1_790_000_000;

fn node() -> Node {
    Node {
        name: "edge-4f2a10".to_owned(),
        advertise: "198.18.0.1".parse().expect("an address"),
        service_address: "10.96.0.1".parse().expect("an address"),
        site_addresses: Vec::new(),
    }
}

fn at(now: u64) -> Validity {
    Validity { built: BUILT, now }
}

#[test]
fn everything_is_made_once_and_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let cas = authorities(dir.path(), at(BUILT), false).expect("authorities");
    let issued = leaves_on_disk(dir.path(), &node(), &cas, at(BUILT)).expect("leaves");
    assert_eq!(issued.len(), 7);
    assert!(issued.iter().all(|one| one.reason == Reason::Missing));
    let again = authorities(dir.path(), at(BUILT + DAY), true).expect("authorities again");
    assert_eq!(again.cluster.pem, cas.cluster.pem);
    assert_eq!(leaves_on_disk(dir.path(), &node(), &again, at(BUILT + DAY)).expect("leaves again"), Vec::new());
}

#[test]
fn a_new_address_changes_only_the_serving_certificate_and_keeps_its_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let cas = authorities(dir.path(), at(BUILT), false).expect("authorities");
    leaves_on_disk(dir.path(), &node(), &cas, at(BUILT)).expect("leaves");
    let key = fs_err::read(dir.path().join("apiserver.key")).expect("key");
    let moved = Node { site_addresses: vec![IpAddr::from([192, 168, 1, 7])], ..node() };
    let issued = leaves_on_disk(dir.path(), &moved, &cas, at(BUILT)).expect("leaves again");
    assert_eq!(issued.len(), 1);
    assert_eq!((issued[0].file.as_str(), issued[0].reason), ("apiserver", Reason::NamesChanged));
    assert_eq!(fs_err::read(dir.path().join("apiserver.key")).expect("key"), key);
}

#[test]
fn any_file_lost_in_a_power_cut_is_made_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let cas = authorities(dir.path(), at(BUILT), false).expect("authorities");
    leaves_on_disk(dir.path(), &node(), &cas, at(BUILT)).expect("leaves");
    for name in ["apiserver.crt", "apiserver.key", "etcd/peer.crt", "etcd/server.key"] {
        fs_err::write(dir.path().join(name), b"").expect("cut off");
        let issued = leaves_on_disk(dir.path(), &node(), &cas, at(BUILT)).expect("leaves again");
        assert_eq!(issued.len(), 1, "{name}");
    }
    fs_err::remove_file(dir.path().join("sa.pub")).expect("removed");
    leaves_on_disk(dir.path(), &node(), &cas, at(BUILT)).expect("leaves again");
    assert!(dir.path().join("sa.pub").exists());
}

#[test]
fn an_authority_is_replaced_before_it_is_recorded_and_never_after() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = authorities(dir.path(), at(BUILT), false).expect("authorities");
    fs_err::remove_file(dir.path().join("etcd/ca.key")).expect("removed");
    let second = authorities(dir.path(), at(BUILT), false).expect("authorities");
    assert_eq!(first.cluster.pem, second.cluster.pem);
    assert_ne!(first.etcd.pem, second.etcd.pem);
    fs_err::remove_file(dir.path().join("etcd/ca.key")).expect("removed");
    let error = authorities(dir.path(), at(BUILT), true).err().expect("an error");
    assert!(error.to_string().contains("etcd-ca"), "{error}");
}

#[test]
fn certificates_are_issued_for_a_reason() {
    let spec = LeafSpec::client(Subject::user("someone"));
    let good = FoundCertificate {
        subject: "CN=someone".to_owned(),
        names: Vec::new(),
        not_before: BUILT,
        not_after: BUILT + 365 * DAY,
        public: Vec::new(),
        signed: true,
    };
    let late = BUILT + 365 * DAY - RENEW_BEFORE.as_secs();
    let table = [
        (None, BUILT, Some(Reason::Missing)),
        (Some(good.clone()), BUILT, None),
        (Some(good.clone()), late, None),
        (Some(good.clone()), late + 1, Some(Reason::EndsSoon)),
        (Some(good.clone()), BUILT - 1, Some(Reason::NotYetValid)),
        (Some(FoundCertificate { signed: false, ..good.clone() }), BUILT, Some(Reason::OtherAuthority)),
        (Some(FoundCertificate { subject: "CN=other".to_owned(), ..good.clone() }), BUILT, Some(Reason::OtherSubject)),
        (Some(FoundCertificate { names: vec!["a".to_owned()], ..good }), BUILT, Some(Reason::NamesChanged)),
    ];
    for (found, now, expected) in table {
        assert_eq!(decide(&spec, found.as_ref(), now), expected, "{found:?} at {now}");
    }
}

#[test]
fn a_clock_in_2090_or_1970_makes_certificates_that_hold_when_it_is_corrected() {
    for clock in [0, BUILT, 3_786_912_000] {
        let dir = tempfile::tempdir().expect("a directory");
        let cas = authorities(dir.path(), at(clock), false).expect("authorities");
        let spec = LeafSpec::client(Subject::member("system:masters", "kubernetes-super-admin"));
        let pem = issue(&spec, &keys::generate().expect("key"), &cas.cluster, at(clock)).expect("issued");
        let found = inspect_leaf(&pem, &cas.cluster).expect("a certificate");
        assert_eq!(found.not_before, BUILT);
        assert_eq!(found.not_after, clock.max(BUILT) + 365 * DAY);
        assert!(found.signed);
    }
}

#[test]
fn names_and_subjects_are_those_of_kubeadm() {
    let by_file = |file: &str| leaves(&node()).into_iter().find(|spec| spec.file == file).expect("a leaf");
    assert_eq!(by_file("apiserver").addresses[0].to_string(), "10.96.0.1");
    assert_eq!(by_file("apiserver").subject.text(), "CN=kube-apiserver");
    assert_eq!(by_file("etcd/server").names(), ["127.0.0.1", "198.18.0.1", "::1", "edge-4f2a10", "localhost"]);
    assert_eq!(by_file("etcd/peer").authority, Authority::Etcd);
}

#[test]
fn the_kubelet_gets_a_chain_of_two() {
    let pair = kubelet_serving("edge-4f2a10", at(BUILT)).expect("a pair");
    assert_eq!(pair.certificate.matches("BEGIN CERTIFICATE").count(), 2);
    let found = inspect(&pair.certificate).expect("a certificate");
    assert_eq!(found.names, ["edge-4f2a10"]);
    assert_eq!(found.subject, format!("CN=edge-4f2a10@{BUILT}"));
}

/// What a certificate says beside keys, numbers and times, in comparable words.
fn shape(pem: &str) -> Vec<String> {
    let der = keys::der_of(pem, "CERTIFICATE").expect("PEM");
    let (_, certificate) = X509Certificate::from_der(&der).expect("X.509");
    let life = certificate.validity().not_after.timestamp() - certificate.validity().not_before.timestamp();
    let mut lines = vec![
        format!("version {:?}, {} -> {}", certificate.version(), certificate.issuer(), certificate.subject()),
        format!("signed with {}", certificate.signature_algorithm.algorithm),
        format!("{} days", life / i64::try_from(DAY).expect("small")),
        // How each part of the subject is encoded matters to nobody but a byte-wise comparison.
        format!("{:?}", certificate.subject().iter_attributes().map(|a| a.attr_value().tag()).collect::<Vec<_>>()),
    ];
    let mut extensions: Vec<String> = certificate
        .extensions()
        .iter()
        .map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(_) => "subject key identifier".to_owned(),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                format!("authority key identifier, serial {}", id.authority_cert_serial.is_some())
            }
            other => format!("{other:?} critical {}", extension.critical),
        })
        .collect();
    extensions.sort();
    lines.append(&mut extensions);
    lines
}

#[test]
fn every_certificate_has_the_shape_of_kubeadms() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cluster/pki/testdata/kubeadm");
    let dir = tempfile::tempdir().expect("a directory");
    // Built five minutes before now: kubeadm too sets the start that far back.
    let at = Validity { built: BUILT, now: BUILT + 300 };
    let node = Node { name: "foothold-node-name".to_owned(), ..node() };
    let cas = authorities(dir.path(), at, false).expect("authorities");
    leaves_on_disk(dir.path(), &node, &cas, at).expect("leaves");
    let read = |path: &Path| fs_err::read_to_string(path).expect("read");
    let files = ["ca", "front-proxy-ca", "etcd/ca"].into_iter().map(str::to_owned);
    for file in files.chain(leaves(&node).into_iter().map(|spec| spec.file)) {
        let file = format!("{file}.crt");
        assert_eq!(shape(&read(&dir.path().join(&file))), shape(&read(&golden.join(&file))), "{file}");
    }
    let user = Subject::member("system:nodes", "system:node:foothold-node-name");
    let mut users: Vec<_> = crate::cluster::kubeconfig::users().into_iter().collect();
    users.push(("kubelet.conf", user));
    for (file, subject) in users {
        let key = keys::generate().expect("a key");
        let pem = issue(&LeafSpec::client(subject), &key, &cas.cluster, at).expect("issued");
        assert_eq!(shape(&pem), shape(&read(&golden.join(format!("{file}.crt")))), "{file}");
    }
}
