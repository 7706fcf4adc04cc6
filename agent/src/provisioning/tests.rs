use std::net::IpAddr;

use agent_api::net::AddressRange;
use agent_api::release::{Blob, Digest, Image};
use agent_api::servers::Provisioning;

use super::{EMPTY_DATABASE, IronicPlan, RUN, STATE, servers_side};
use crate::provisioning::database::Reason;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A box below `root` whose release declares provisioning.
fn plan(root: &std::path::Path) -> IronicPlan {
    let empty = root.join(EMPTY_DATABASE.trim_start_matches('/'));
    fs_err::create_dir_all(empty.parent().expect("a folder")).expect("made");
    fs_err::write(empty, b"SQLite format 3\0").expect("written");
    let manifest = Digest::from_hex(&"a".repeat(64)).expect("a digest");
    let blobs = vec![Blob { digest: manifest.clone(), size: 1 }];
    let image =
        Image { reference: "foothold.dev/ironic:29.0.5".to_owned(), index: None, inner: Vec::new(), manifest, blobs };
    IronicPlan { declared: Provisioning::default(), image, built: 1_790_000_000, root: root.to_owned() }
}

#[test]
fn servers_reach_the_box_at_the_declared_interface_then_beside_the_range_of_leases() {
    let have: Vec<(String, IpAddr)> = [
        ("lo", "127.0.0.1"),
        ("cluster0", "198.18.0.1"),
        ("ens3", "192.0.2.7"),
        ("ens4", "fe80::1"),
        ("ens4", "fd00::1"),
        ("ens4", "172.22.0.1"),
        ("ens5", "10.0.0.1"),
        ("ens4", "172.22.0.2"),
    ]
    .map(|(name, address)| (name.to_owned(), ip(address)))
    .into();
    let declared = |interface: Option<&str>, range: Option<(&str, &str)>| Provisioning {
        interface: interface.map(str::to_owned),
        range: range.map(|(first, last)| AddressRange {
            first: first.parse().expect("an address"),
            last: last.parse().expect("an address"),
        }),
        ..Provisioning::default()
    };
    let own = Some("172.22.0.2/24".parse().expect("an address"));
    let leases = Some(("172.22.0.10", "172.22.0.100"));
    let table = [
        (declared(None, None), None, None),
        (declared(Some("ens3"), None), None, Some("192.0.2.7")),
        (declared(Some("ens3"), None), Some("ens5"), Some("10.0.0.1")),
        (declared(Some("ens4"), None), None, Some("172.22.0.1")),
        (declared(Some("ens9"), leases), None, Some("172.22.0.1")),
        (declared(None, leases), None, Some("172.22.0.1")),
        (Provisioning { address: own, ..declared(Some("ens4"), leases) }, None, Some("172.22.0.2")),
        (declared(None, Some(("172.23.0.10", "172.23.0.11"))), None, None),
    ];
    for (declared, by_mac, expected) in table {
        let found = servers_side(&declared, by_mac, &have).map(|(_, address)| address);
        assert_eq!(found, expected.map(ip), "{declared:?} {by_mac:?}");
    }
}

#[test]
fn the_pod_stays_while_nothing_changes_and_is_another_one_otherwise() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    let place = |address: &str, lost: bool| plan.place(ip(address), lost).expect("laid out");
    let first = place("172.22.0.1", false);
    assert_eq!(first.new_database, Some(Reason::First));
    assert_eq!(place("172.22.0.1", false).generation, first.generation);
    let moved = place("172.22.0.2", false);
    assert!(moved.generation != first.generation && moved.new_database.is_none());
    let database = dir.path().join(STATE.trim_start_matches('/')).join("db/ironic.sqlite");
    fs_err::remove_file(&database).expect("lost");
    let anew = place("172.22.0.2", false);
    assert!(anew.generation != moved.generation && anew.new_database == Some(Reason::Lost));
    assert!(database.is_file());
    assert_ne!(place("172.22.0.2", true).generation, anew.generation, "its word counts, whatever it looks like");
    let run = dir.path().join(RUN.trim_start_matches('/'));
    for (file, begin) in [("server.pem", "-----BEGIN PRIVATE KEY"), ("ca.crt", "-----BEGIN CERT"), ("htpasswd", "foot")]
    {
        assert!(fs_err::read_to_string(run.join(file)).expect("text").starts_with(begin), "{file}");
    }
}

#[test]
fn a_release_without_the_image_has_none() {
    let mut release = crate::fixtures::release();
    let root = std::path::Path::new("/");
    release.provisioning = Some(Provisioning::default());
    assert!(IronicPlan::of(&release, Provisioning::default(), root).is_none(), "nor one without the image");
}
