//! `ironic.conf`. Pure text. Options as Ironic 29.0 documents them; those that are left out have its defaults.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use agent_api::ports;

use super::{RUN, STATE};
use crate::ironic::CALLBACK_SECS;

/// Where servers find what Ironic makes for them, below the content server's root.
pub const HTTP_PATH: &str = "provisioning";
/// The release's deploy ramdisk, below the content server's root, less the endings of its two files.
const RAMDISK: &str = "netboot/ironic-python-agent";
/// Kernel parameters of the ramdisk. When it inspects, it also listens for LLDP, for up to half a minute, which is how often
/// switches send it.
const KERNEL: &str = "nofb vga=normal console=tty0 console=ttyS0,115200n8 ipa-inspection-collectors=default,logs,lldp";
/// Kernel parameter of a ramdisk that does not check Ironic's certificate. Virtual media carry the box's authority, by which it
/// is checked (Ironic's `[agent] api_ca_file`). What comes by TFTP and plain HTTP cannot carry one: who can change it on its
/// way can change that, too.
pub const UNCHECKED: &str = "ipa-insecure=1";

/// The name of the own address's option, and the version of IP.
const fn family(address: IpAddr) -> (&'static str, u8) {
    match address {
        IpAddr::V4(_) => ("my_ip", 4),
        IpAddr::V6(_) => ("my_ipv6", 6),
    }
}

/// Where BMCs fetch virtual media of a box that servers reach at `address`: by TLS, because the token of a server's agent is in
/// them.
pub fn media_url(address: IpAddr) -> String {
    format!("https://{}/{HTTP_PATH}", SocketAddr::new(address, ports::CONTENT))
}

/// The configuration of a box that servers reach at `address`. Ironic listens on loopback only: requests of servers come
/// through the agent ([`super::wire`]).
pub fn render(address: IpAddr) -> String {
    let ((my, version), at) = (family(address), |port: u16| SocketAddr::new(address, port));
    let (own, port, api) = (Ipv4Addr::LOCALHOST, ports::IRONIC_LOOPBACK, format!("https://{}", at(ports::IRONIC)));
    let [content, ramdisk] = [HTTP_PATH, RAMDISK].map(|path| format!("http://{}/{path}", at(ports::CONTENT)));
    format!(
        "[DEFAULT]
auth_strategy = http_basic
http_basic_auth_user_file = {RUN}/htpasswd
rpc_transport = none
host = box
{my} = {address}
state_path = {STATE}
tempdir = {STATE}/tmp
use_stderr = true
esp_image = /usr/share/ironic/esp.img
grub_config_path = EFI/BOOT/grub.cfg
enabled_hardware_types = ipmi,redfish,idrac
enabled_bios_interfaces = no-bios,redfish,idrac-redfish
enabled_boot_interfaces = ipxe,redfish-virtual-media,redfish-https,idrac-redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = direct,ramdisk,custom-agent
enabled_firmware_interfaces = no-firmware,redfish
enabled_inspect_interfaces = agent,redfish,idrac-redfish,no-inspect
enabled_management_interfaces = ipmitool,redfish,idrac-redfish,noop
enabled_network_interfaces = noop
enabled_power_interfaces = ipmitool,redfish,idrac-redfish
enabled_raid_interfaces = no-raid,agent,redfish,idrac-redfish
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor,ipmitool,redfish,idrac-redfish
default_boot_interface = ipxe
default_deploy_interface = direct
default_inspect_interface = agent
default_network_interface = noop

[agent]
api_ca_file = {RUN}/ca.crt
certificates_path = {STATE}/certificates
deploy_logs_local_path = {STATE}/logs
image_download_source = http

[api]
host_ip = {own}
port = {port}
api_workers = 1
enable_ssl_api = true
public_endpoint = {api}

[conductor]
automated_clean = true
clean_callback_timeout = {CALLBACK_SECS}
deploy_callback_timeout = {CALLBACK_SECS}
deploy_kernel = {ramdisk}.kernel
deploy_ramdisk = {ramdisk}.initramfs
disable_zstandard_decompression = true
enable_mdns = false
inspect_wait_timeout = {CALLBACK_SECS}

[database]
connection = sqlite:///{STATE}/db/ironic.sqlite

[deploy]
default_boot_mode = uefi
erase_devices_metadata_priority = 10
erase_devices_priority = 0
external_callback_url = {api}
external_http_url = {content}
fast_track = true
http_root = {STATE}/http
http_url = {content}
iso_master_path = {STATE}/master-iso

[dhcp]
dhcp_provider = none

[inspector]
add_ports = disabled
hooks = ramdisk-error,validate-interfaces,ports,parse-lldp,architecture,root-device,boot-mode,cpu-capabilities,memory
keep_ports = all
require_managed_boot = false
update_pxe_enabled = false

[inventory]
data_backend = database

[oslo_concurrency]
lock_path = {STATE}/tmp

[oslo_messaging_notifications]
driver = noop

[pxe]
images_path = {STATE}/images
instance_master_path = {STATE}/master-images
ip_version = {version}
ipxe_bootfile_name = undionly.kpxe
kernel_append_params = {KERNEL} {UNCHECKED}
loader_file_paths = ipxe-arm64.efi:/usr/lib/ipxe/ipxe-arm64.efi,snponly.efi:/usr/lib/ipxe/snponly.efi,undionly.kpxe:/usr/lib/ipxe/undionly.kpxe
tftp_master_path = {STATE}/master-images
tftp_root = {STATE}/tftp
uefi_ipxe_bootfile_name = snponly.efi

[redfish]
kernel_append_params = {KERNEL}
use_swift = false

[service_catalog]
auth_type = none
endpoint_override = {api}

[ssl]
cert_file = {RUN}/server.pem
key_file = {RUN}/server.pem
"
    )
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn the_configuration_names_one_address() {
        insta::assert_snapshot!(render([172, 22, 0, 1].into()));
    }

    #[test]
    fn an_address_of_version_6_is_bracketed_where_it_must_be() {
        let text = render("fd00::1".parse().expect("an address"));
        for line in [
            "my_ipv6 = fd00::1",
            "endpoint_override = https://[fd00::1]:6385",
            "http_url = http://[fd00::1]:6180/provisioning",
            "ip_version = 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
