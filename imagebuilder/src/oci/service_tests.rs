use std::path::Path;

use agent_api::release::{Blob, Digest, Image, Sip, Storage, Vino};

use super::{Declared, Edit, Images, declared};
use crate::config::{Clusters, Provisioning, ServiceName, Services};
use crate::lock::{Deb, Lock};
use crate::oci::recipe::Recipe;
use crate::store::Made;

fn services(provisioning: bool) -> Services {
    let provisioning = provisioning.then(Provisioning::default);
    Services { provisioning, ..Services::default() }
}

#[test]
fn what_servers_run_is_only_served_and_only_where_clusters_are_declared() {
    let services = Services { clusters: Some(Clusters::default()), ..services(true) };
    let declared = declared(Path::new(IMAGES), &services).expect("read");
    let carried: Vec<&Declared> = declared.iter().filter(|image| image.extra.carried).collect();
    let sets: Vec<String> = carried.iter().map(|image| image.set()).collect();
    assert_eq!(sets, ["service-image/flannel", "service-image/haproxy", "service-image/keepalived"]);
    assert_eq!(carried[0].programs().collect::<Vec<_>>(), ["flanneld", "flannel-install-conf"]);
    let image = Image {
        reference: carried[0].recipe.reference.clone(),
        index: None,
        inner: Vec::new(),
        manifest: Digest::of("manifest"),
        blobs: vec![Blob { digest: Digest::of("manifest"), size: 8 }],
    };
    let mut made = Made::default();
    made.set_fact("image", &image).expect("a fact");
    made.set_fact("manifest", &image.blobs[0]).expect("a fact");
    let mut images = Images::default();
    for one in &declared {
        images.add(one, &made).expect("made");
    }
    assert_eq!((images.packed.len(), images.carried), (declared.len() - 3, vec![image; 3]));
}

#[test]
fn the_metrics_api_needs_nothing_else() {
    let services = Services { metrics: true, ..Services::default() };
    let declared = declared(Path::new(IMAGES), &services).expect("read");
    let sets: Vec<String> = declared.iter().map(Declared::set).collect();
    assert_eq!(sets, ["service-image/metrics-server"]);
    assert!(!declared[0].extra.carried, "the box runs it");
}

#[test]
fn volumes_need_nothing_else_and_pods_that_make_them_have_a_shell() {
    let services = Services { storage: Some(Storage { share_percent: 50 }), ..Services::default() };
    let declared = declared(Path::new(IMAGES), &services).expect("read");
    let sets: Vec<String> = declared.iter().map(Declared::set).collect();
    assert_eq!(sets, ["service-image/local-path-provisioner"]);
    assert!(!declared[0].extra.carried, "the box runs it");
    assert_eq!(declared[0].recipe.debian, ["busybox-static"]);
    for program in ["/usr/bin/sh", "/usr/bin/mkdir", "/usr/bin/rm"] {
        assert_eq!(declared[0].extra.links[program], "busybox");
    }
}

/// What the box runs is unpacked on it; what it may never run is only in its registry.
#[test]
fn tenant_clusters_have_a_controller_with_haproxy_a_jump_host_and_a_login() {
    let services = Services { sip: Some(Sip::default()), ..services(true) };
    let declared = declared(Path::new(IMAGES), &services).expect("read");
    let of_sip: Vec<(String, bool)> = declared
        .iter()
        .filter(|image| image.extra.of == ServiceName::Sip)
        .map(|image| (image.set(), image.extra.carried))
        .collect();
    let expected = [("service-image/jumphost", true), ("service-image/oidc", true), ("service-image/sip", false)];
    assert_eq!(of_sip, expected.map(|(set, carried)| (set.to_owned(), carried)));
}

/// The box runs it on its own node, so it is unpacked there.
#[test]
fn virtual_machines_have_an_image_with_libvirt_for_their_nodes() {
    let services = Services { vino: Some(Vino::default()), ..services(true) };
    let declared = declared(Path::new(IMAGES), &services).expect("read");
    let of_vino: Vec<&Declared> = declared.iter().filter(|image| image.extra.of == ServiceName::Vino).collect();
    assert_eq!(of_vino.iter().map(|image| image.set()).collect::<Vec<_>>(), ["service-image/vino"]);
    assert!(!of_vino[0].extra.carried && of_vino[0].recipe.reference.starts_with("foothold.dev/vino:"));
    assert_eq!(of_vino[0].programs().collect::<Vec<_>>(), ["foothold-agent"]);
}

const IMAGES: &str = "../images";

#[test]
fn only_a_release_that_declares_the_service_has_its_image() {
    let images = Path::new(IMAGES);
    assert!(declared(images, &services(false)).expect("read").is_empty());
    let declared = declared(images, &services(true)).expect("read");
    let sets: Vec<String> = declared.iter().map(Declared::set).collect();
    assert_eq!(sets, ["service-image/dnsmasq", "service-image/foothold-agent", "service-image/ironic"]);
    let own = Recipe::read_all(images).expect("read");
    for image in &declared {
        assert!(own.iter().all(|recipe| recipe.reference != image.recipe.reference), "every box would have it");
        assert!(image.extra.without.is_sorted(), "sort the packages");
    }
    assert_eq!(declared[1].programs().collect::<Vec<_>>(), ["foothold-agent"]);
    assert!(declared[1].packages(&Lock::new(1)).expect("none is asked for").is_empty());
}

#[test]
fn another_version_than_the_edits_were_proved_with_is_refused_and_named() {
    let declared = declared(Path::new(IMAGES), &services(true)).expect("read").split_off(2);
    let debs = |version: &str| {
        let sha256 = Digest::from_hex(&"0".repeat(64)).expect("a digest");
        let (name, architecture) = ("python3-ironic".to_owned(), "all".to_owned());
        vec![Deb { name, version: version.to_owned(), architecture, sha256, size: 1 }]
    };
    declared[0].check_versions(&debs("1:29.0.5-0+deb13u4")).expect("an update of the same version");
    let error = declared[0].check_versions(&debs("1:30.0.0-1")).expect_err("another one").to_string();
    for part in ["python3-ironic", "1:30.0.0-1", "1:29.0.5-*", "hint: ", "image.yaml"] {
        assert!(error.contains(part), "{error}");
    }
    let empty = Lock::new(1);
    let error = declared[0].packages(&empty).expect_err("an old lock").to_string();
    assert!(error.contains("`service-image/ironic`") && error.contains("lock --update"), "{error}");
}

#[test]
fn an_edit_wants_its_text_exactly_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("node.py");
    let edit = Edit { file: "/node.py".into(), replace: "a = 1\n".into(), with: "a = 2\n".into() };
    for (text, fits) in [("x\na = 1\ny\n", true), ("x\ny\n", false), ("a = 1\na = 1\n", false)] {
        fs_err::write(&file, text).expect("written");
        let applied = edit.apply(&file);
        assert_eq!(applied.is_ok(), fits, "{text:?}");
        let expected = if fits { "x\na = 2\ny\n" } else { text };
        assert_eq!(fs_err::read_to_string(&file).expect("text"), expected);
    }
}
