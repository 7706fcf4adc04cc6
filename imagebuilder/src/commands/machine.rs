//! An image in a virtual machine, as `up`, `run` and `prove` start it.

mod disks;

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_api::boot::CONTAINERS;
use agent_api::events::Event;
use agent_api::ports;
use agent_api::release::Release;
use agent_api::servers::InterfaceChoice;
use agent_api::servers::Provisioning;
use agent_api::site::Site;
use anyhow::{Context, Result, bail};
use foothold_qemu::site::Lan;
use foothold_qemu::{Accel, Disk, Firmware, Format, Nic, Tools, Vm, VmBuilder};
use sha2::{Digest, Sha256};

use super::common::{self, Job};
use crate::builder::Builder;
use crate::cli::{Attach, LoneMachine, Machine, MachineFirmware, Network};
use crate::config::ByteSize;
use crate::disk::fat::{self, FatKind, Volume};
use crate::disk::{Content, SourceFile};
use crate::host::command::pause;
use crate::host::files::{write_shared, write_whole};
use crate::layer::squashfs;
use crate::medium::Medium;
use crate::medium::bytes::Cursor;
use crate::pipeline;
use crate::report::{Outcome, Report, Timings};
use crate::running::{Place, Running};
use crate::store::WorkDir;
use crate::toolbox::Toolbox;

/// Size of the Site volume: a FAT16 file system.
const SITE_VOLUME: u64 = 16 << 20;
/// Hardware address of the card on the servers' network, where a definition names it otherwise.
const SERVERS_CARD: &str = "52:54:00:46:00:01";
/// What is reached on the host's loopback.
const FORWARDED: [u16; 5] = [ports::WEB, ports::KUBERNETES_API, ports::REGISTRY, ports::CONTENT, ports::BPA];
/// Where an image has kubectl: layer, path in it. With programs of Kubernetes that are one it is in the second.
const KUBECTL: [(&str, &str); 2] = [("kubernetes", "usr/bin/kubectl"), (CONTAINERS, "host/usr/bin/kubectl")];
/// How long a box may stay without any new event before it counts as stuck.
const STALL: Duration = Duration::from_secs(300);
/// The console draws what an event says at its next turn.
const SCREEN_DRAWN: Duration = Duration::from_secs(3);

/// What machine, and what in it.
pub struct Plan<'a> {
    /// The image.
    pub image: &'a Path,
    /// How it is attached; by what it is when not given.
    pub attach: Option<Attach>,
    /// Firmware.
    pub firmware: MachineFirmware,
    /// Memory.
    pub memory: ByteSize,
    /// Processors.
    pub cpus: u32,
    /// Network.
    pub network: Network,
    /// Network cards beside it.
    pub nics: &'a [Nic],
    /// A bridge or TAP device of the host that one more card leads to.
    pub bridge: Option<&'a str>,
    /// What the hardware clock shows at power-on, UTC, such as `1970-01-01T00:00:00`; the host's time when not given.
    pub clock: Option<&'a str>,
    /// The user's Site.
    pub site: Option<&'a Path>,
    /// Where the disk's changes go; forgotten when not given.
    pub overlay: Option<&'a Path>,
}

impl<'a> Plan<'a> {
    /// As the command line asks.
    pub fn new(image: &'a Path, attach: Option<Attach>, machine: &'a Machine) -> Self {
        Self {
            image,
            attach,
            firmware: machine.firmware,
            memory: machine.memory,
            cpus: machine.cpus,
            network: machine.network,
            nics: &[],
            bridge: machine.bridge.as_deref(),
            clock: machine.clock.as_deref(),
            site: machine.site.as_deref(),
            overlay: None,
        }
    }

    /// To measure an image: with no network, and with its changes kept in `overlay`.
    pub fn alone(image: &'a Path, attach: Option<Attach>, machine: LoneMachine, overlay: &'a Path) -> Self {
        Self {
            image,
            attach,
            firmware: machine.firmware,
            memory: machine.memory,
            cpus: machine.cpus,
            network: Network::None,
            nics: &[],
            bridge: None,
            clock: None,
            site: None,
            overlay: Some(overlay),
        }
    }
}

/// A running box. Dropping it ends the machine.
pub struct Session {
    /// The machine.
    pub vm: Vm,
    /// What executes its instructions.
    pub accel: Accel,
    /// The token that was made for this start. `None`: Site brings a token of its own, of which it holds only the hash.
    token: Option<String>,
    /// Where others find it.
    place: Place,
    /// The image that it runs.
    image: PathBuf,
    work: WorkDir,
}

/// The tools of the toolbox, which is made when it is not there.
pub fn tools(at: &Builder) -> Result<Tools> {
    tools_with(at, &[])
}

/// The same, and made anew when it is from a time before these programs.
pub fn tools_with(at: &Builder, programs: &[&str]) -> Result<Tools> {
    let current = at.cache.path("toolbox/current");
    if !current.exists() || programs.iter().any(|program| !current.join(program).exists()) {
        let job = Job::load(Path::new("images/appliance"))?;
        let lock = common::locked(at, &job, false)?;
        pipeline::toolbox(at, &lock)?;
    }
    if let Some(missing) = programs.iter().find(|program| !current.join(program).exists()) {
        bail!("the lock's toolbox has no `{missing}`\nhint: `foothold lock --update images/appliance`");
    }
    Ok(Tools::from_toolbox(&current)?)
}

/// KVM or software emulation, found out by booting when it is not known.
pub fn accelerator(at: &Builder, tools: &Tools) -> Result<Accel> {
    at.report.step("run", "accelerator").run(|step| {
        step.note("booting a few instructions to see whether KVM works");
        Ok(Accel::detect_cached(tools, &at.cache.path("accelerator")))
    })
}

/// Switches the machine on.
pub fn start(at: &Builder, plan: &Plan<'_>) -> Result<Session> {
    let tools = tools(at)?;
    let accel = accelerator(at, &tools)?;
    let work = at.cache.work_dir()?;
    let medium = Medium::open(plan.image).ok();
    let release = medium.as_ref().and_then(first_release);
    let mut own = read_site(plan.site)?;
    let token = give_token(&mut own, plan.overlay)?;
    let declared = release.as_ref().and_then(|release| release.provisioning.as_ref());
    let cable = plan.bridge.map(|name| Lan::of_this_thread(&tools).cable_to_users(name)).transpose()?;
    let card = cable.as_ref().map_or_else(Nic::silent, Nic::device);
    let servers_card = match declared.filter(|_| plan.nics.is_empty()) {
        Some(declared) => Some(card.mac(servers_card(&mut own, declared))),
        None => cable.map(|_| card),
    };
    let site = work.path().join("site.img");
    // JSON is YAML.
    write_site(&site, &serde_json::to_string_pretty(&own)?)?;
    let name = plan.image.file_stem().map_or_else(|| "box".into(), |stem| stem.to_string_lossy().into_owned());
    let mut builder = VmBuilder::new(&tools, name.clone())
        .accel(accel)
        .memory_mib(u32::try_from(plan.memory.bytes() >> 20).context("the memory of the machine")?)
        .cpus(plan.cpus)
        .firmware(match plan.firmware {
            MachineFirmware::Bios => Firmware::Bios,
            MachineFirmware::Uefi => Firmware::Uefi,
            MachineFirmware::UefiSecure => Firmware::UefiSecureBoot,
        })
        .boot(disks::boot(plan, medium.as_ref())?)
        .disk(Disk::open(&site)?.format(Format::Raw).serial("foothold-site"));
    let install = release.and_then(|release| release.install);
    if let Some(disk) = install.map(|target| disks::to_install_on(plan, work.path(), target)).transpose()? {
        builder = builder.disk(disk);
    }
    if let Some(clock) = plan.clock {
        builder = builder.clock(clock);
    }
    if plan.network == Network::User {
        builder = builder.nic(Nic::user(&FORWARDED));
    }
    for nic in plan.nics.iter().chain(&servers_card) {
        builder = builder.nic(nic.clone());
    }
    let place = Place::claim(&at.cache, &name)?;
    let image = plan.image.to_owned();
    Ok(Session { vm: builder.start()?, accel, token, place, image, work })
}

/// The image's release. What is wrong with an image is for the box to say.
pub fn release_of(image: &Path) -> Option<Release> {
    first_release(&Medium::open(image).ok()?)
}

fn first_release(medium: &Medium) -> Option<Release> {
    medium.releases().ok()?.first()?.release().ok()
}

/// MAC address of the card on the servers' network: the one that the definition or Site names; where they choose the card in
/// another way, Site is changed to name the card's. Where the box would get its address there from elsewhere, Site gives it
/// one.
fn servers_card(site: &mut Site, declared: &Provisioning) -> String {
    let servers = site.networks.provisioning.get_or_insert_with(|| declared.into());
    let named = servers.interface.take().unwrap_or_default();
    let mac = named.mac_address.unwrap_or_else(|| SERVERS_CARD.to_owned());
    servers.interface = Some(InterfaceChoice { mac_address: Some(mac.clone()), name: None });
    if let (None, Some(range)) = (&servers.address, servers.resolve().0.range) {
        let [a, b, c, _] = range.first.octets();
        let free = [1, 254].map(|last| Ipv4Addr::new(a, b, c, last));
        let free = free.into_iter().find(|own| !(range.first..=range.last).contains(own));
        servers.address = free.map(|own| format!("{own}/24"));
    }
    mac
}

/// The user's Site, or an empty one.
fn read_site(file: Option<&Path>) -> Result<Site> {
    let Some(path) = file else {
        return Ok(Site { api_version: "foothold.dev/v1".into(), kind: "Site".into(), ..Site::default() });
    };
    Site::parse(&fs_err::read_to_string(path)?).with_context(|| format!("reading `{}`", path.display()))
}

/// A token of this run; a Site that has one keeps it. A disk whose changes are kept keeps its token, too, in a file beside
/// it: a box that has its access takes no other.
fn give_token(site: &mut Site, disk: Option<&Path>) -> Result<Option<String>> {
    if site.access.token_sha256.is_some() {
        return Ok(None);
    }
    let kept = disk.map(|disk| disk.with_extension("token"));
    let known = kept.as_ref().filter(|kept| kept.exists()).map(fs_err::read_to_string).transpose()?;
    let token = known.unwrap_or_else(|| hex::encode(rand::random::<[u8; 32]>()));
    if let Some(kept) = kept {
        write_whole(&kept, token.as_bytes()).with_context(|| format!("writing `{}`", kept.display()))?;
    }
    site.access.token_sha256 = Some(hex::encode(Sha256::digest(token.as_bytes())));
    Ok(Some(token))
}

fn write_site(path: &Path, text: &str) -> Result<()> {
    let volume = Volume {
        label: "SITE",
        serial: rand::random(),
        bytes: SITE_VOLUME,
        offset: 0,
        kind: FatKind::Fat16,
        sector: fat::SECTOR,
        cluster: 2048,
        time: 1 << 30,
    };
    let file = SourceFile { path: "site.yaml".into(), content: Content::Bytes(text.as_bytes().to_vec()) };
    fat::write(path, &volume, &[file])?;
    Ok(())
}

impl Session {
    /// Passes the box's events on until it is ready.
    pub fn until_ready(&mut self, report: &Report, timeout: Option<Duration>) -> Result<Event> {
        let mut events = self.vm.events();
        let mut last = self.vm.since_power_on();
        let limit = timeout.unwrap_or(Duration::from_secs(3600));
        loop {
            report.cancel().check()?;
            let now = self.vm.since_power_on();
            match events.next(Duration::from_millis(200)) {
                Some(line) => {
                    last = now;
                    let Some(event) = line.value.and_then(|value| serde_json::from_value::<Event>(value).ok()) else {
                        continue;
                    };
                    report.event(&event);
                    if event.is_ready() {
                        return Ok(event);
                    }
                    if event.is_fatal() {
                        self.give_up(event.text("cause").unwrap_or("the box gave up"))?;
                    }
                }
                None if self.vm.exited().is_some() => self.give_up("the machine ended")?,
                None if now > limit => self.give_up(&format!("not ready after {} s", limit.as_secs()))?,
                None if now.saturating_sub(last) > STALL => {
                    self.give_up(&format!("nothing new for {} s", STALL.as_secs()))?;
                }
                None => last_words(&self.vm.serial_text()).map_or(Ok(()), |words| self.give_up(words))?,
            }
        }
    }

    /// Keeps what the machine said, and fails.
    fn give_up(&self, why: &str) -> Result<()> {
        // A new folder: in one that is there by a name that can be guessed, somebody else may have put links.
        let dir = tempfile::Builder::new().prefix(&format!("foothold-{}-", self.vm.name())).tempdir();
        let keep = |dir: tempfile::TempDir| self.vm.keep(dir.path()).map(|()| dir.keep());
        let kept = match dir.and_then(|dir| keep(dir).map_err(std::io::Error::other)) {
            Ok(dir) => format!("serial output, screen and events are in `{}`", dir.display()),
            Err(error) => format!("nothing could be kept: {error}"),
        };
        bail!("the box did not become ready: {why}\nhint: {kept}")
    }

    /// Address of the web page on this host, when there is a network.
    pub fn web(&self) -> Option<String> {
        Some(format!("https://{}", self.vm.forwarded(ports::WEB)?))
    }

    /// The access token of this run; none where Site has its own.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Says where the box is reached, and with which token.
    pub fn tell_access(&self, report: &Report) {
        if let Some(web) = self.web() {
            let token = self.token().map_or_else(|| "token: Site's own".to_owned(), |token| format!("token {token}"));
            report.info(&format!("web page and REST: {web} ({token})"));
        }
    }

    /// Writes a picture of the screen, a PNG: all of it, or nothing.
    pub fn screenshot(&self, png: &Path) -> Result<()> {
        pause(SCREEN_DRAWN);
        let picture = self.work.path().join("screen.png");
        self.vm.screenshot(&picture)?;
        write_shared(png, &fs_err::read(picture)?).with_context(|| format!("writing `{}`", png.display()))
    }

    /// Lets `foothold kubectl` find the box. `kubeconfig`: its own; `namespace`: of the site that it stands in.
    pub fn tell(&self, at: &Builder, kubeconfig: &Path, namespace: Option<&Path>) -> Result<Running> {
        let running = Running {
            kubectl: kubectl_of(at, &self.image)?,
            kubeconfig: kubeconfig.to_owned(),
            pid: std::process::id(),
            namespace: namespace.map(Path::to_owned),
        };
        self.place.tell(&running)?;
        Ok(running)
    }

    /// The folder of this box, which outlives the machine.
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// Fetches the kubeconfig and writes it where it outlives the machine's scratch folder.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let (web, api) = (self.web().context("the machine has no network")?, self.vm.forwarded(ports::KUBERNETES_API));
        let api = api.context("the machine forwards no port of the Kubernetes API")?;
        let token = self.token().context("the box takes the token of its Site, which is not known here")?;
        let text = get(&format!("{web}/api/v1/kubeconfig?server=https://{api}"), token)?;
        let path = self.place.dir().join("kubeconfig");
        write_whole(&path, text.as_bytes()).with_context(|| format!("writing `{}`", path.display()))?;
        Ok(path)
    }

    /// The result of `up` and `run`. `namespace`: of the site that the box stands in.
    pub fn outcome(&self, at: &Builder, ready: &Event, namespace: Option<&Path>) -> Result<Outcome> {
        let web = self.web().unwrap_or_default();
        let known = self.token.is_some() && !web.is_empty();
        let kubeconfig = if known { self.kubeconfig()? } else { PathBuf::new() };
        if known && let Err(error) = self.tell(at, &kubeconfig, namespace) {
            at.report.warn(&format!("`foothold kubectl` does not find this box: {error:#}"));
        }
        Ok(Outcome::Ready { web, kubeconfig, secs: at.report.secs(), timings: timings(ready) })
    }
}

/// The kubectl of an image, taken out of its layer once.
fn kubectl_of(at: &Builder, image: &Path) -> Result<PathBuf> {
    let release = release_of(image).with_context(|| format!("`{}` has no release", image.display()))?;
    let digest = |name: &str| release.layers.iter().find(|layer| layer.name == name).map(|layer| &layer.digest);
    let digests = KUBECTL.map(|(layer, _)| digest(layer));
    let [Some(first), Some(second)] = digests else { bail!("the image has no layers with kubectl") };
    let path = at.cache.path("kubectl").join(format!("{}-{}", first.hex(), second.hex())).join("kubectl");
    if path.exists() {
        return Ok(path);
    }
    let work = at.cache.work_dir()?;
    let toolbox = Toolbox::at(&fs_err::canonicalize(at.cache.path("toolbox/current"))?, &at.helper);
    let medium = Medium::open(image)?;
    let read = |layer: &agent_api::release::Digest, path: &str| {
        let copy = work.path().join("layer");
        let blob = medium.blob(layer)?.context("the image lacks a layer that its release names")?;
        std::io::copy(&mut Cursor::new(blob), &mut fs_err::File::create(&copy)?)?;
        squashfs::file_of(&toolbox, &copy, path)
    };
    let program = read(first, KUBECTL[0].1).or_else(|_| read(second, KUBECTL[1].1))?;
    fs_err::create_dir_all(path.parent().context("a folder")?)?;
    let partial = work.path().join("kubectl");
    fs_err::write(&partial, program)?;
    fs_err::set_permissions(&partial, std::fs::Permissions::from_mode(0o755))?;
    fs_err::rename(&partial, &path)?;
    Ok(path)
}

/// Timings of the event that says `ready`.
pub fn timings(ready: &Event) -> Timings {
    let value = |key: &str| ready.detail.get("timings")?.get(key)?.as_f64();
    Timings { node_ready: value("nodeReady").unwrap_or_default(), ready: value("ready").unwrap_or(ready.t) }
}

/// The kernel's words when it fails before the agent sends events, or after the agent has ended.
fn last_words(serial: &str) -> Option<&str> {
    const WORDS: [&str; 2] = ["Initramfs unpacking failed", "Kernel panic - not syncing"];
    let found = |line: &'_ &str| WORDS.iter().any(|words| line.contains(words));
    serial.lines().find(found).map(str::trim)
}

/// A GET with the bearer token. The box's certificate is its own: what is trusted here is the loopback address.
fn get(url: &str, token: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build()?;
        let answer = client.get(url).bearer_auth(token).send().await?.error_for_status()?;
        Ok(answer.text().await?)
    })
}

#[cfg(test)]
mod tests {
    use agent_api::servers::Provisioning;
    use agent_api::servers::{InterfaceChoice, ServersNetwork};
    use agent_api::site::Site;

    use super::{SERVERS_CARD, give_token, last_words, servers_card};

    #[test]
    fn a_site_keeps_a_token_of_its_own() {
        let mut site = Site::default();
        let token = give_token(&mut site, None).expect("given").expect("one of this run");
        assert_eq!((token.len(), site.access.token_sha256.as_ref().map(String::len)), (64, Some(64)));
        let before = site.clone();
        assert_eq!(give_token(&mut site, None).expect("asked"), None, "nobody here knows it");
        assert_eq!(site, before);
    }

    #[test]
    fn a_disk_whose_changes_are_kept_keeps_its_token() {
        let dir = tempfile::tempdir().expect("a folder");
        let disk = dir.path().join("disk.qcow2");
        let token = || give_token(&mut Site::default(), Some(&disk)).expect("given").expect("one of this disk");
        assert_eq!(token(), token());
        assert_ne!(give_token(&mut Site::default(), None).expect("given"), Some(token()));
    }

    /// What a box is told of the servers' network, whose definition says this.
    fn told(site: &mut Site, definition: &ServersNetwork) -> Provisioning {
        let (declared, wrong) = definition.resolve();
        assert_eq!(wrong, []);
        let _ = servers_card(site, &declared);
        let (told, wrong) = site.networks.provisioning.as_ref().expect("told").resolve();
        assert_eq!(wrong, []);
        told
    }

    fn network(mac: Option<&str>, name: Option<&str>, address: Option<&str>, range: Option<&str>) -> ServersNetwork {
        let [mac_address, name, address, range] = [mac, name, address, range].map(|text| text.map(str::to_owned));
        ServersNetwork { interface: Some(InterfaceChoice { mac_address, name }), address, range, dhcp: None }
    }

    #[test]
    fn a_box_that_provisions_finds_the_card_that_its_definition_names() {
        let mac = network(Some("52:54:00:22:00:99"), None, Some("172.22.0.1/24"), Some("172.22.0.10-172.22.0.99"));
        assert_eq!(told(&mut Site::default(), &mac), mac.resolve().0);

        // No virtual machine has a card of that name.
        let name = network(None, Some("enp65s0f1"), Some("172.22.0.1/24"), None);
        let found = told(&mut Site::default(), &name);
        assert_eq!((found.mac_address.as_deref(), found.interface), (Some(SERVERS_CARD), None));
        assert_eq!(found.address, name.resolve().0.address);

        // DHCP is served from an address beside those that are leased.
        let asks = network(None, Some("eno1"), None, Some("10.1.2.1-10.1.2.9"));
        assert_eq!(told(&mut Site::default(), &asks).address.expect("one").to_string(), "10.1.2.254/24");
        let nothing = told(&mut Site::default(), &ServersNetwork::default());
        assert_eq!((nothing.mac_address.as_deref(), nothing.address), (Some(SERVERS_CARD), None));
    }

    #[test]
    fn sites_word_about_the_servers_network_comes_before_the_definitions() {
        let here = network(Some("52:54:00:00:00:07"), None, Some("10.7.0.1/24"), None);
        let mut site = Site::default();
        site.networks.provisioning = Some(here.clone());
        let definition = network(Some("52:54:00:22:00:99"), None, Some("172.22.0.1/24"), None);
        assert_eq!(told(&mut site, &definition), here.resolve().0);
    }

    #[test]
    fn the_kernels_last_words_are_found_on_the_serial_line() {
        let serial = "[    1.2] Run /init as init process\r\n[    1.9] Kernel panic - not syncing: No working init\r\n";
        assert_eq!(last_words(serial), Some("[    1.9] Kernel panic - not syncing: No working init"));
        assert_eq!(last_words("[    1.2] Run /init as init process\r\n"), None);
    }
}
