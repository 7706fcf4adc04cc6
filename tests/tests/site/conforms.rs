//! Kubernetes' own conformance tests on a cluster of servers, which pulls their images from the box.

use foothold_tests::conformance;

use crate::clusters::{Wished, alone, forms, goes, kubeconfig_of, with_formed_box_that_carries};

/// How long the tests run.
const SECS: u32 = 1800;

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site conforms -- --ignored --nocapture`"]
fn a_cluster_of_servers_conforms() {
    let programs = conformance::programs();
    let images = programs.clone();
    with_formed_box_that_carries(
        move |dir| conformance::images(dir, &images),
        |formed, site, image, dir| async move {
            let wished: &[Wished] = &[("master-0", 0x20, 4096)];
            let nodes = forms(&site, wished, alone(), (&image, dir.path()), |host| formed.known(host)).await;
            let kubeconfig = dir.path().join("kubeconfig");
            fs_err::write(&kubeconfig, kubeconfig_of(&site, "one").await).expect("written");
            tokio::task::block_in_place(|| conformance::run(&programs, &kubeconfig, dir.path(), SECS));
            goes(&site, &nodes).await;
        },
    );
}
