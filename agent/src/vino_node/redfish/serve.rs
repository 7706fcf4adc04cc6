//! Which domains there are, who may log in, and HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use foothold_qemu::bmc::{Enclosure, EnclosureOptions, Guard, Machine};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::boot;
use super::power::{self, LibvirtPower};
use crate::host::files;
use crate::ssh;
use crate::vino_node::Paths;
use crate::vino_node::ledger::Ledger;
use crate::vino_node::virsh::Virsh;
use crate::vino_node::xml::Element;

/// How often the ledger is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// So many requests at once are answered by one look.
const LOOKS: usize = 64;
/// How long an operating system may take to shut down when it is asked to.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who may log in: the user in the builder's file. Until that file exists, the user that the container was started with.
#[derive(Debug)]
pub struct Htpasswd {
    /// Paths.
    pub paths: Paths,
    /// Name and password of the environment.
    pub first: Option<(String, String)>,
}

impl Guard for Htpasswd {
    fn lets_in(&self, user: &str, password: &str) -> bool {
        let Ok(text) = fs_err::read_to_string(self.paths.htpasswd()) else {
            return self.first.as_ref().is_some_and(|(name, secret)| name == user && secret == password);
        };
        let hashes = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| *name == user);
        hashes.map(|(_, hash)| hash).any(|hash| bcrypt::verify(password, hash.trim()).unwrap_or(false))
    }
}

/// A listener for [`serve`].
pub async fn listen(at: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(at).await.with_context(|| format!("listening on {at}"))
}

/// The key of the consoles' server: of the node, so that it is known again whichever pod runs there.
fn console_key(paths: &Paths) -> anyhow::Result<String> {
    let path = paths.console_key();
    match fs_err::read_to_string(&path) {
        Ok(key) => Ok(key),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let (key, _) = ssh::new_key("vino")?;
            files::write(&path, key.as_bytes(), 0o600)?;
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}

/// Serves Redfish, and consoles over SSH, until it cannot go on.
pub async fn serve(
    listener: TcpListener,
    consoles: TcpListener,
    virsh: Virsh,
    paths: Paths,
    guard: Arc<dyn Guard>,
) -> anyhow::Result<()> {
    fs_err::create_dir_all(paths.media())?;
    power::sweep(&paths)?;
    let key = console_key(&paths)?;
    let port = Some(consoles.local_addr()?.port());
    let (looks, asked) = mpsc::channel(LOOKS);
    let enclosure =
        Enclosure::new(EnclosureOptions { guard, consoles: port, images: paths.media(), looks: Some(looks) })?;
    let served = axum::serve(listener, enclosure.router());
    tokio::select! {
        ended = std::future::IntoFuture::into_future(served) => Ok(ended?),
        ended = enclosure.serve_consoles(consoles, &key, CancellationToken::new()) => {
            ended.with_context(|| format!("`{}`", paths.console_key().display()))
        }
        () = follow(&enclosure, &virsh, &paths, asked) => Ok(()),
    }
}

/// Keeps the domains of the enclosure up to date: those that are in the ledger and in libvirt. It looks now and then, and when
/// a request names one that it does not have: the builder may have made it after the last look.
async fn follow(enclosure: &Enclosure, virsh: &Virsh, paths: &Paths, mut asked: mpsc::Receiver<oneshot::Sender<()>>) {
    let mut last = None;
    let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        let (by, at) = (virsh.clone(), paths.clone());
        let found = tokio::task::spawn_blocking(move || machines(&by, &at, last)).await;
        let looked = matches!(found, Ok(Ok(_)));
        match found {
            Ok(Ok(Some((mark, machines)))) => {
                let names: BTreeSet<String> = machines.iter().map(|machine| machine.name.clone()).collect();
                for gone in enclosure.names().into_iter().filter(|name| !names.contains(name)) {
                    enclosure.remove(&gone);
                }
                for machine in machines {
                    let power = LibvirtPower::new(virsh.clone(), paths.clone(), machine.name.clone(), PATIENCE);
                    enclosure.put(machine, Arc::new(power));
                }
                last = Some(mark);
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => log::debug!("looking at the domains: {error:#}"),
            Err(error) => log::warn!("looking at the domains: {error}"),
        }
        for asker in waiting.drain(..).filter(|_| looked) {
            // Who asked may be gone.
            let _ = asker.send(());
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = asked.recv_many(&mut waiting, LOOKS) => {}
        }
    }
}

/// The machines, if the ledger or the list of domains has changed since `last`.
fn machines(virsh: &Virsh, paths: &Paths, last: Option<u64>) -> anyhow::Result<Option<(u64, Vec<Machine>)>> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let ledger = Ledger::read(&paths.ledger())?;
    let listed = virsh.lines(&["list", "--all", "--uuid", "--name"])?;
    let there: BTreeMap<&str, &str> =
        listed.iter().filter_map(|line| line.split_once(' ')).map(|(uuid, name)| (name.trim(), uuid)).collect();
    // One that was made anew by the same name is another one.
    let ours = ledger.domains.iter().filter(|(_, entry)| entry.hash.is_some());
    let ours: Vec<(&String, &Option<String>, &str)> =
        ours.filter_map(|(name, entry)| Some((name, &entry.hash, *there.get(name.as_str())?))).collect();
    let mut mark = DefaultHasher::new();
    ours.hash(&mut mark);
    let mark = mark.finish();
    if last == Some(mark) {
        return Ok(None);
    }
    let described = ours.into_iter().map(|(name, ..)| machine(virsh, name)).collect::<anyhow::Result<_>>()?;
    Ok(Some((mark, described)))
}

fn machine(virsh: &Virsh, name: &str) -> anyhow::Result<Machine> {
    let text = virsh.run(&["dumpxml", "--inactive", name])?;
    let domain = Element::parse(&text)?;
    let number = |child: &str| domain.child(child).and_then(|it| it.text().parse::<u64>().ok()).unwrap_or(0);
    let devices = || domain.child("devices").into_iter().flat_map(Element::elements);
    let cards = devices().filter(|element| element.name == "interface");
    let uuid = domain.child("uuid").map(Element::text).unwrap_or_default();
    Ok(Machine {
        name: name.to_owned(),
        serial: uuid.clone(),
        uuid,
        macs: cards.filter_map(|card| card.of_child("mac", "address")).map(str::to_owned).collect(),
        cpus: u32::try_from(number("vcpu")).unwrap_or(u32::MAX),
        // libvirt tells it in KiB.
        memory_mib: u32::try_from(number("memory") / 1024).unwrap_or(u32::MAX),
        firmware: boot::mode(&domain),
        // libvirt joins a console to it by a terminal only.
        serial_line: devices()
            .any(|element| matches!(element.name.as_str(), "serial" | "console") && element.get("type") == Some("pty")),
    })
}
