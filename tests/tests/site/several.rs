//! Several servers at once: what one of them needs must not wait for another, nor take anything from it.

use std::net::Ipv4Addr;
use std::time::Duration;

use foothold_qemu::bmc::Mode;
use foothold_qemu::site::Controller;
use serde_json::{Value, json};

use crate::bench::{DISK, NODE, RESCUE, Site, has_image, in_state};
use crate::booted::with_booted_box;
use crate::server::Server;
use crate::{BOOT, network_data, was_left_alone};

/// What three machines do on two processors.
const LONG: Duration = Duration::from_secs(2700);

/// One of them, and the address that its system is to have.
struct One {
    name: &'static str,
    server: Server,
    address: Ipv4Addr,
}

impl One {
    /// The image for Kubernetes nodes, with a name, a key, an address, and an answer made of them, which the kernel says.
    async fn is_told_to_be_a_node(&self, site: &Site) {
        let Self { name, server, address } = self;
        let user_data = format!(
            "#cloud-config\nssh_authorized_keys: [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey given-to-{name}\"]\nruncmd:\n\
             - [sh, -c, 'echo \"answer: $(hostname) $(cut -d\" \" -f3 /home/debian/.ssh/authorized_keys | tail -n1) \
             $(kubeadm version -o short) $(ip -4 -o addr show scope global | wc -l)\" > /dev/kmsg']\n"
        );
        site.secret(&format!("{name}-user"), json!({"userData": user_data})).await;
        site.secret(&format!("{name}-network"), json!({"networkData": network_data(server, &address.to_string())}))
            .await;
        let (user, network) = (json!({"name": format!("{name}-user")}), json!({"name": format!("{name}-network")}));
        let spec = json!({"image": site.image(NODE), "userData": user, "networkData": network});
        site.change(name, json!({"spec": spec})).await;
    }

    async fn is_a_node(&self) {
        let Self { name, server, address } = self;
        server.says(&format!("answer: {name} given-to-{name} v1.36.4 1"), BOOT).await;
        server.answers_ssh(*address, BOOT).await;
        server.keep_words("node");
    }
}

/// One with BIOS and IPMI, one with UEFI and Redfish, both by PXE; one with virtual media and no DHCP.
async fn three(site: &mut Site) -> [One; 3] {
    let named = |name, last, server| One { name, server, address: Ipv4Addr::new(172, 22, 0, last) };
    let server = site.server_with("server-6", "52:54:00:22:00:06", Mode::Legacy, Controller::Ipmi, &[DISK]);
    let bios = named("server-6", 26, server);
    let uefi = named("server-7", 27, site.server("server-7", "52:54:00:22:00:07"));
    let media = named("server-8", 28, site.server("server-8", "52:54:00:22:00:08"));
    let network = network_data(&media.server, &media.address.to_string());
    site.secret("ramdisk-network", json!({"networkData": network})).await;
    let spec = json!({"bmc": {"address": bios.server.address("ipmi")}, "bootMode": "legacy"});
    site.host(bios.name, &bios.server, spec).await;
    site.host(uefi.name, &uefi.server, json!({"bmc": {"address": uefi.server.address("redfish+https")}})).await;
    let address = media.server.address("redfish-virtualmedia+https");
    let spec = json!({"bmc": {"address": address}, "preprovisioningNetworkDataName": "ramdisk-network"});
    site.host(media.name, &media.server, spec).await;
    [bios, uefi, media]
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn three_servers_are_installed_at_once_and_each_then_goes_its_own_way() {
    with_booted_box(&[RESCUE, NODE], |mut site| async move {
        let all = three(&mut site).await;
        let names = all.each_ref().map(|one| one.name);
        site.all(&names, "available", LONG, in_state("available")).await;
        for one in &all {
            one.is_told_to_be_a_node(&site).await;
        }
        site.all(&names, "provisioned", LONG, in_state("provisioned")).await;
        for one in &all {
            one.is_a_node().await;
        }

        let [another, cleaned, let_go] = &all;
        let said = let_go.server.serial();
        let image = site.image(RESCUE);
        let spec = json!({"image": image, "userData": null, "networkData": null});
        site.change(another.name, json!({"spec": spec})).await;
        site.change(cleaned.name, json!({"spec": {"image": null, "userData": null, "networkData": null}})).await;
        let annotations = json!({"baremetalhost.metal3.io/detached": ""});
        site.change(let_go.name, json!({"metadata": {"annotations": annotations}})).await;
        let detached = |host: &Value| host["status"]["operationalStatus"] == "detached";
        site.until(let_go.name, "detached", BOOT, detached).await;
        site.delete(let_go.name).await;
        site.gone(let_go.name, BOOT).await;
        site.state(cleaned.name, "available", LONG).await;
        site.until(another.name, "imaged again", LONG, has_image(&image)).await;
        another.server.says(&format!("{} login:", another.name), BOOT).await;
        was_left_alone(&let_go.server, &said);
        let_go.server.answers_ssh(let_go.address, BOOT).await;
        for leaves in [another, cleaned] {
            site.delete(leaves.name).await;
        }
        for leaves in [another, cleaned] {
            site.gone(leaves.name, LONG).await;
        }
        site.stop().await;
    });
}
