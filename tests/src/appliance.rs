//! The appliance of `images/appliance`, built once, and machines that boot it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_api::events::Event;
use agent_api::ports;
use anyhow::ensure;
use foothold::builder::Builder;
use foothold::cli::{Attach, MachineFirmware, Network, Sources};
use foothold::commands::build;
use foothold::commands::common::{self, Job};
use foothold::commands::machine::{self, Plan, Session};
use foothold::config::ByteSize;
use foothold::error::Cancel;
use foothold::kubernetes::templates::Stock;
use foothold::lock::Lock;
use foothold::pipeline;
use foothold::report::{Report, Show};
use foothold_qemu::{Nic, Patience, in_network_of_process};
use serde_json::json;

use crate::client::Client;
use crate::waits;

/// How long a box may go without a new event. Emulated machines on a busy host are slow, but never silent.
pub const PATIENCE: Patience = Patience { stall: Duration::from_secs(420), total: Duration::from_secs(1500) };

/// The built appliance.
pub struct Appliance {
    builder: Builder,
    /// Folder of the images.
    pub out: PathBuf,
}

/// How a machine boots the appliance.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// `qcow2`, `raw` or `iso`.
    pub format: &'a str,
    /// How it is attached.
    pub attach: Attach,
    /// Firmware.
    pub firmware: MachineFirmware,
    /// Network.
    pub network: Network,
    /// Network cards beside it.
    pub nics: &'a [Nic],
    /// What its hardware clock shows at power-on, UTC; this host's time when not given.
    pub clock: Option<&'a str>,
    /// What the machine is told of its site.
    pub site: Option<&'a Path>,
    /// Where the disk's changes are kept over a power cut.
    pub overlay: Option<&'a Path>,
    /// Another image than the built one: a damaged copy.
    pub image: Option<&'a Path>,
}

impl Default for How<'_> {
    fn default() -> Self {
        Self {
            format: "qcow2",
            attach: Attach::Disk,
            firmware: MachineFirmware::Bios,
            network: Network::None,
            nics: &[],
            clock: None,
            site: None,
            overlay: None,
            image: None,
        }
    }
}

/// A running machine, and the lock that keeps other tests from running one.
pub struct Boxed {
    /// The machine.
    pub session: Session,
    _alone: Option<MutexGuard<'static, ()>>,
}

static ALONE: Mutex<()> = Mutex::new(());
static BUILT: OnceLock<Appliance> = OnceLock::new();

impl Appliance {
    /// Builds the appliance, or finds it built.
    pub fn get() -> &'static Self {
        BUILT.get_or_init(|| Self::build().unwrap_or_else(|error| panic!("building the appliance: {error:#}")))
    }

    fn build() -> anyhow::Result<Self> {
        let builder = builder()?;
        let out = builder.cache.path("tests/appliance");
        Self::make(builder, Path::new("images/appliance"), out)
    }

    /// Builds another definition, its images beside it.
    pub fn of(definition: &Path) -> Self {
        let out = definition.with_file_name("out");
        let made = builder().and_then(|builder| Self::make(builder, definition, out));
        made.unwrap_or_else(|error| panic!("building `{}`: {error:#}", definition.display()))
    }

    fn make(builder: Builder, definition: &Path, out: PathBuf) -> anyhow::Result<Self> {
        let job = common::Job::load(definition)?;
        build::build(&builder, &job, &out)?;
        Ok(Self { builder, out })
    }

    /// A cluster that stock kubeadm makes of the same programs. No machine runs meanwhile: it would get too little of the
    /// processors.
    pub fn stock_cluster(&self) -> Stock {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let stock = || {
            let job = common::Job::load(Path::new("images/appliance"))?;
            let lock = common::locked(&self.builder, &job, false)?;
            pipeline::stock_cluster(&self.builder, &job.appliance, &lock)
        };
        stock().unwrap_or_else(|error: anyhow::Error| panic!("running stock kubeadm: {error:#}"))
    }

    /// The image of that format.
    pub fn image(&self, format: &str) -> PathBuf {
        let name = |entry: &fs_err::DirEntry| entry.path().extension().is_some_and(|found| found == format);
        let mut entries = fs_err::read_dir(&self.out).expect("the images' folder").filter_map(Result::ok);
        entries.find(name).unwrap_or_else(|| panic!("no {format} image")).path()
    }

    /// Switches a machine on.
    pub fn boot(&self, how: How<'_>) -> Boxed {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Boxed { session: self.start(how), _alone: Some(alone) }
    }

    /// Switches another machine on beside one of the same test.
    pub fn boot_beside(&self, _one: &Boxed, how: How<'_>) -> Boxed {
        Boxed { session: self.start(how), _alone: None }
    }

    fn start(&self, how: How<'_>) -> Session {
        let image = how.image.map_or_else(|| self.image(how.format), Path::to_owned);
        let plan = Plan {
            image: &image,
            attach: Some(how.attach),
            firmware: how.firmware,
            memory: ByteSize::mib(4096),
            cpus: 2,
            network: how.network,
            nics: how.nics,
            bridge: None,
            clock: how.clock,
            site: how.site,
            overlay: how.overlay,
        };
        machine::start(&self.builder, &plan).unwrap_or_else(|error| panic!("starting: {error:#}"))
    }

    /// Switches the same box on again and again and cuts its power, each time so many seconds later; then once more.
    pub fn boot_after_cuts(&self, how: How<'_>, instants: impl IntoIterator<Item = u64>) -> Boxed {
        assert!(how.overlay.is_some(), "what lies on the disk must be there at the next boot");
        for instant in instants {
            let machine = self.boot(how);
            let mut events = machine.session.vm.events();
            while machine.session.vm.since_power_on() < Duration::from_secs(instant) {
                assert!(machine.session.vm.exited().is_none(), "the machine ended by itself");
                let _ = events.next(Duration::from_millis(50));
            }
            machine.session.vm.kill().expect("the power is cut");
        }
        self.boot(how)
    }

    /// Makes an object on a ready box, cuts its power, and finds it again when the same box is ready once more.
    pub fn keeps_what_is_made(&self, how: How<'_>, machine: Boxed) {
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "made-by-a-test" } });
        machine.client().kubernetes().create(maps, &map);
        machine.session.vm.kill().expect("the power is cut");
        drop(machine);
        let mut machine = self.boot(how);
        machine.until_ready();
        let found = machine.client().kubernetes().get(&format!("{maps}/made-by-a-test"));
        assert_eq!(found["metadata"]["name"], "made-by-a-test");
    }

    /// The builder, for its cache.
    pub fn builder(&self) -> &Builder {
        &self.builder
    }
}

/// A builder as the commands have one.
///
/// # Errors
/// On a thread of a site's network, whatever the cache has: what it has not cannot be fetched there.
pub fn builder() -> anyhow::Result<Builder> {
    ensure!(in_network_of_process()?, "what a test builds is made before it enters the network of a site");
    // Two TLS providers in a process would be a bug; a second install is not.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let report = Report::new(Show::default(), Cancel::default());
    let sources = Sources::default();
    let mut builder = common::builder(&sources, &report)?;
    // The tests' own program cannot enter the toolbox; `cargo test --workspace` has built the one that can.
    builder.helper = program();
    Ok(builder)
}

/// The lock of a definition of the working tree. One of other sources or recipes than those of today is made anew.
pub fn locked(at: &Builder, job: &Job) -> anyhow::Result<Lock> {
    common::locked(at, job, false).or_else(|_| common::locked(at, job, true))
}

/// The `foothold` program beside this test's own.
pub fn program() -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let beside = this.ancestors().skip(1).map(|dir| dir.join("foothold")).find(|path| path.is_file());
    beside.expect("the program `foothold`: run `cargo test --workspace`, or `cargo build -p foothold` first")
}

impl Boxed {
    /// Waits until the box is ready; on the way every failure is printed.
    pub fn until_ready(&mut self) -> Event {
        let ready = self.until("the box to be ready", Event::is_ready);
        assert_eq!(waits::sat_out(&self.session.vm.serial_text()), [""; 0], "its boot sat out a wait");
        ready
    }

    /// Waits for an event.
    pub fn until(&mut self, wanted: &str, mut found: impl FnMut(&Event) -> bool) -> Event {
        let parsed = |value: &serde_json::Value| serde_json::from_value::<Event>(value.clone()).ok();
        let event =
            self.session.vm.wait_until(PATIENCE, wanted, |value| parsed(value).is_some_and(|event| found(&event)));
        match event {
            Ok(value) => parsed(&value).expect("it was an event"),
            Err(error) => {
                let dir = std::env::temp_dir().join(format!("foothold-test-{}", std::process::id()));
                let kept = self.session.vm.keep(&dir);
                panic!("{error}\nserial output, screen and events: {} ({kept:?})", dir.display());
            }
        }
    }

    /// The box's access token.
    pub fn token(&self) -> &str {
        self.session.token().expect("a token of this run")
    }

    /// Where a port of the box is reached on this host.
    pub fn address(&self, port: u16) -> SocketAddr {
        self.session.vm.forwarded(port).unwrap_or_else(|| panic!("port {port} is not forwarded"))
    }

    /// A client of the box's REST.
    pub fn client(&self) -> Client {
        Client::new(self.address(ports::WEB), self.address(ports::KUBERNETES_API), self.token())
    }
}
