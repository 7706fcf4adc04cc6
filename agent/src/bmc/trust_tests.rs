//! Certificates of BMCs as the field has them. What is good here is what `openssl s_client -CAfile` takes.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::*;

const ADDRESS: &str = "192.0.2.1";

fn params(names: &[&str], is_ca: IsCa, common_name: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.is_ca = is_ca;
    params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
    params
}

const CA: IsCa = IsCa::Ca(BasicConstraints::Unconstrained);

fn own(params: &CertificateParams) -> CertificateDer<'static> {
    params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
}

fn issuer(common_name: &str) -> CertifiedIssuer<'static, KeyPair> {
    CertifiedIssuer::self_signed(params(&[], CA, common_name), KeyPair::generate().expect("a key"))
        .expect("an authority")
}

/// What is said of a server's certificate, with those that it sends and those that are known.
fn judged(
    served: &CertificateDer<'static>,
    sent: &[CertificateDer<'static>],
    known: &[CertificateDer<'static>],
) -> Option<CertificateProblem> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let address = ServerName::try_from(ADDRESS).expect("an address");
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
    match Verifier::of(known, &provider).verify_server_cert(served, sent, &address, &[], now) {
        Ok(_) => None,
        Err(Error::InvalidCertificate(error)) => Some(CertificateProblem::of(&error)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_certificate_that_signs_itself_serves_where_it_is_known_authority_or_not() {
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa, CA] {
        let served = own(&params(&[ADDRESS], is_ca, "bmc"));
        assert_eq!(judged(&served, &[], std::slice::from_ref(&served)), None, "{is_ca:?}");
        let other = own(&params(&[ADDRESS], is_ca, "bmc"));
        assert_eq!(judged(&other, &[], std::slice::from_ref(&served)), Some(CertificateProblem::Unknown), "{is_ca:?}");
        assert_eq!(judged(&other, &[], &[]), Some(CertificateProblem::Unknown), "{is_ca:?}");
    }
}

#[test]
fn its_name_and_time_count_where_it_is_known_itself_too() {
    let named = own(&params(&["bmc.example", "192.0.2.9"], CA, "bmc"));
    let theirs = vec!["bmc.example".to_owned(), "192.0.2.9".to_owned()];
    assert_eq!(judged(&named, &[], std::slice::from_ref(&named)), Some(CertificateProblem::OtherName(theirs)));
    let nameless = own(&params(&[], CA, ADDRESS));
    let problem = judged(&nameless, &[], std::slice::from_ref(&nameless)).expect("a common name counts for nothing");
    assert!(matches!(problem, CertificateProblem::OtherName(_)), "{problem:?}");
    for (from, to, expected) in [(2000, 2001, CertificateProblem::Expired), (2090, 2091, CertificateProblem::NotYet)] {
        let mut params = params(&[ADDRESS], CA, "bmc");
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let served = own(&params);
        assert_eq!(judged(&served, &[], std::slice::from_ref(&served)), Some(expected));
    }
}

#[test]
fn a_chain_ends_at_one_that_signs_itself_wherever_those_between_come_from() {
    let root = issuer("root");
    let key = KeyPair::generate().expect("a key");
    let between = CertifiedIssuer::signed_by(params(&[], CA, "between"), key, &root).expect("one between");
    let key = KeyPair::generate().expect("a key");
    let served = params(&[ADDRESS], IsCa::NoCa, "bmc").signed_by(&key, &between).expect("signed").der().clone();
    let (root, between) = (root.der().clone(), between.der().clone());
    let sent = std::slice::from_ref(&between);
    assert_eq!(judged(&served, sent, std::slice::from_ref(&root)), None);
    assert_eq!(judged(&served, &[], &[root.clone(), between.clone()]), None, "the Secret has both");
    assert_eq!(judged(&served, &[], std::slice::from_ref(&root)), Some(CertificateProblem::Unknown));
    assert_eq!(judged(&served, sent, sent), Some(CertificateProblem::Unknown), "one between is no end");
    let itself = std::slice::from_ref(&served);
    assert_eq!(judged(&served, sent, itself), Some(CertificateProblem::Unknown), "a server's that others signed");
}

#[test]
fn a_pem_text_has_certificates_or_is_told() {
    let one = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a certificate").cert.pem();
    assert!(
        matches!(Trust::authorities(&format!("# of the site\n{one}{one}")), Ok(Trust::Authorities(all)) if all.len() == 2)
    );
    assert_eq!(Trust::authorities("no PEM").expect_err("none"), AuthorityError::None);
    let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken = Trust::authorities(&format!("{one}{none}")).expect_err("broken");
    assert!(broken.to_string().starts_with("certificate 2: "), "{broken}");
}

/// Each hint, against what it advises.
#[test]
fn no_hint_advises_what_does_not_help() {
    let hint = |problem: &CertificateProblem, given| problem.hint(given);
    assert!(hint(&CertificateProblem::Unknown, false).contains("as `ca.crt`"));
    assert!(hint(&CertificateProblem::Unknown, true).starts_with("`ca.crt` in the Secret has no"));
    let name = CertificateProblem::OtherName(vec!["bmc.example".into()]);
    assert!(hint(&name, false).contains("`ca.crt` does not help") && name.to_string().contains("`bmc.example`"));
    for problem in [CertificateProblem::Expired, CertificateProblem::NotYet] {
        assert!(!hint(&problem, false).contains("ca.crt"), "{problem}");
    }
}
