//! Provisioning of the site's servers, where the release declares it: real Ironic in a pod of the host's network.
//!
//! ```text
//! release, address ─config─┐
//! DATA: credentials ───────┼─> /run/foothold/ironic ─┐
//! DATA: the box's authority┘                         ├─ pod (static, kubelet) ─ asked by client ─> drivers
//! image's empty database ─database─> DATA ───────────┘
//! Secrets of BMCs ─authorities─> /run/foothold/ironic, read anew for each connection
//! servers, BMCs ─wire─> what each of them may read of its API and files
//! ```
//! One process is API and conductor: its database is sqlite's, which two must not share. The database holds nothing
//! that cannot be made again from the cluster's resources, so a lost or foreign one is replaced by an empty one.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use agent_api::ports;
use agent_api::release::{Image, Release};
use agent_api::servers::Provisioning;
use sha2::{Digest, Sha256};

use crate::door;
use crate::host::files;
use crate::vitals::is_link_local;

pub mod authorities;
pub mod client;
pub mod config;
pub mod credentials;
pub mod database;
pub mod dhcp;
pub mod kept;
pub mod segment;
pub mod served;
pub mod wire;

use credentials::IronicCredentials;

/// Secrets on DATA, for the agent alone.
pub const SECRETS: &str = "/var/lib/foothold/provisioning";
/// What Ironic writes, on DATA.
pub const STATE: &str = "/var/lib/foothold/ironic";
/// What Ironic only reads, forgotten at power-off.
pub const RUN: &str = "/run/foothold/ironic";
/// What the name of Ironic's image begins with.
pub const IMAGE: &str = "foothold.dev/ironic:";
/// User and group of Ironic's pod.
pub const USER: u32 = 65531;
/// The empty database of the release's Ironic.
const EMPTY_DATABASE: &str = "/usr/share/foothold/services/ironic.sqlite";
/// Folders that Ironic expects below [`STATE`].
const FOLDERS: [&str; 9] =
    ["certificates", "db", "http", "images", "logs", "master-images", "master-iso", "tftp", "tmp"];

/// How Ironic is laid out on a box whose release provisions servers.
#[derive(Clone, Debug)]
pub struct IronicPlan {
    /// The servers' network, as Site declares it; without that, as the release declares it.
    pub declared: Provisioning,
    image: Image,
    built: u64,
    root: PathBuf,
}

/// Everything placed for the pod to start.
#[derive(Clone, Debug)]
pub struct PlacedIronic {
    /// Its image.
    pub image: String,
    /// Digest of what it only reads when it starts.
    pub generation: String,
    /// How to reach its API.
    pub access: client::Access,
    /// Why the database was created again, if it was.
    pub new_database: Option<database::Reason>,
}

impl IronicPlan {
    /// The plan for the box at `root`; `None` when the release has no image of Ironic.
    pub fn of(release: &Release, declared: Provisioning, root: &Path) -> Option<Self> {
        let image = release.image(IMAGE)?.clone();
        Some(Self { declared, image, built: release.built, root: root.to_owned() })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The address under which servers reach the box: the first of the declared interface, else one beside the range
    /// of leases, else `own`. `addresses` are the box's, by name of the interface.
    pub fn address(&self, addresses: &[(String, IpAddr)], own: IpAddr) -> IpAddr {
        self.servers_side(addresses).map_or(own, |(_, address)| address)
    }

    /// The interface on the servers' network and the box's IPv4 address there; `None` while it has no address.
    pub fn segment(&self, addresses: &[(String, IpAddr)]) -> Option<(String, Ipv4Addr)> {
        match self.servers_side(addresses)? {
            (interface, IpAddr::V4(address)) => Some((interface, address)),
            _ => None,
        }
    }

    fn servers_side(&self, addresses: &[(String, IpAddr)]) -> Option<(String, IpAddr)> {
        let by_mac = self.declared.mac_address.as_deref().and_then(|mac| self.interface_of(mac));
        servers_side(&self.declared, by_mac.as_deref(), addresses)
    }

    /// Name of the interface with that MAC address.
    fn interface_of(&self, mac: &str) -> Option<String> {
        let entries = fs_err::read_dir(self.at("/sys/class/net")).ok()?;
        let found = entries.filter_map(Result::ok).find(|entry| {
            fs_err::read_to_string(entry.path().join("address")).is_ok_and(|own| own.trim().eq_ignore_ascii_case(mac))
        })?;
        Some(found.file_name().to_string_lossy().into_owned())
    }

    /// Lays out everything except the pod itself. With `lost` the database is created again in any case.
    pub fn place(&self, address: IpAddr, lost: bool) -> anyhow::Result<PlacedIronic> {
        let credentials = IronicCredentials::open(&self.at(SECRETS))?;
        let authority = self.place_certificate()?;
        let text = config::render(address);
        for folder in FOLDERS {
            let folder = self.at(STATE).join(folder);
            fs_err::create_dir_all(&folder)?;
            give(&folder)?;
        }
        give(&self.at(STATE))?;
        let manifest = self.image.manifest.hex();
        let database = database::ensure(&self.at(STATE).join("db"), &self.at(EMPTY_DATABASE), manifest, lost)?;
        let password_file = credentials.password_file();
        for (name, bytes) in
            [("ironic.conf", text.as_bytes()), ("htpasswd", password_file.as_bytes()), ("ca.crt", authority.as_bytes())]
        {
            let path = self.at(RUN).join(name);
            files::write(&path, bytes, 0o640)?;
            give(&path)?;
        }
        let authorities = self.at(RUN).join(authorities::FILE);
        if !authorities.exists() {
            self.trust(&authority, &authorities::Certificates::new())?;
        }
        let mut generation = Sha256::new();
        let server = fs_err::read(self.at(RUN).join("server.pem"))?;
        for part in [text.as_bytes(), password_file.as_bytes(), &server, database.id.as_bytes()] {
            generation.update(Sha256::digest(part));
        }
        let generation = hex::encode(&generation.finalize()[..8]);
        let access = client::Access { port: ports::IRONIC, authority, credentials, media: config::media_url(address) };
        Ok(PlacedIronic { image: self.image.reference.clone(), generation, access, new_database: database.made })
    }

    /// Writes the authorities that Ironic trusts at BMCs. Returns whether the file changed.
    pub fn trust(&self, own: &str, others: &authorities::Certificates) -> anyhow::Result<bool> {
        let path = self.at(RUN).join(authorities::FILE);
        let written = files::write(&path, authorities::text(own, others).as_bytes(), 0o640)?;
        give(&path)?;
        Ok(written)
    }

    /// The certificate, kept on DATA, as the pod's user reads it. Returns the authority.
    fn place_certificate(&self) -> anyhow::Result<String> {
        let kept = self.at(SECRETS).join("server.pem");
        let authority = door::certificate_at(&kept, &self.at(door::CERTIFICATES), self.built)?;
        let path = self.at(RUN).join("server.pem");
        files::write(&path, &fs_err::read(kept)?, 0o640)?;
        give(&path)?;
        Ok(authority)
    }
}

/// The interface on the servers' network and the address there. A declared interface and address are preferred to others.
fn servers_side(
    declared: &Provisioning,
    by_mac: Option<&str>,
    addresses: &[(String, IpAddr)],
) -> Option<(String, IpAddr)> {
    let usable = || addresses.iter().filter(|(_, ip)| !ip.is_loopback() && !is_link_local(*ip));
    let mut found: Vec<&(String, IpAddr)> = Vec::new();
    if let Some(interface) = by_mac.or(declared.interface.as_deref()) {
        found.extend(usable().filter(|(name, _)| name == interface));
    }
    if let Some(range) = declared.range {
        // Without the prefix length: servers that are given these addresses are rarely further away than a /24.
        let beside = |ip: &IpAddr| matches!(ip, IpAddr::V4(v4) if v4.octets()[..3] == range.first.octets()[..3]);
        found.extend(usable().filter(|(_, ip)| beside(ip)));
    }
    let own = declared.address.map(|own| IpAddr::from(own.address));
    found.sort_by_key(|(_, ip)| (Some(*ip) != own, ip.is_ipv6()));
    found.first().map(|found| (*found).clone())
}

/// Makes the pod's user the owner of a file or folder. An agent that is not root (in tests) runs no pods and does nothing.
fn give(path: &Path) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    fs_err::os::unix::fs::chown(path, Some(USER), Some(USER))
}

#[cfg(test)]
mod tests;
