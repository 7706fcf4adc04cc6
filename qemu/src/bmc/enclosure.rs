//! One Redfish service before many machines.
//!
//! ```text
//!  request ── who? (Guard, sessions of the front) ──┬─► /redfish/v1/{Systems,Managers,Chassis}        all machines
//!                                                   ├─► /redfish/v1/{Systems,Managers,Chassis}/NAME/… that machine's BMC
//!                                                   └─► all else                                      the front
//! ```
//! Each machine has a system, a manager and a chassis of its own name. Whoever is let in may do all.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State as Shared};
use axum::http::HeaderValue;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use jiff::SignedDuration;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::Error as KeyError;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::change::Guard;
use super::console::{self, Front, Offer};
use super::document::collection;
use super::images::Images;
use super::place::ROOT;
use super::power::{Act, MemoryPower, Power};
use super::profile::{Ids, Profile, ProfileError};
use super::refusal::Refusal;
use super::service::{Service, lock};
use super::state::{Machine, State};
use super::{BmcError, client, events};

/// What each machine is described by.
const PROFILE: &str = include_str!("profiles/enclosure.yaml");
/// Collections that have a member for each machine, and the kind of their members.
const COLLECTIONS: [(&str, &str); 3] = [("Systems", "ComputerSystem"), ("Managers", "Manager"), ("Chassis", "Chassis")];

/// What an enclosure is made of.
pub struct EnclosureOptions {
    /// Who may log in.
    pub guard: Arc<dyn Guard>,
    /// Port on which [`Enclosure::serve_consoles`] serves, if it does.
    pub consoles: Option<u16>,
    /// Folder that images of inserted media are fetched into.
    pub images: PathBuf,
    /// Who keeps the machines up to date, if anybody does. A request for one that is not there makes it look, and waits until
    /// it has. One that cannot look lets go of what it was sent.
    pub looks: Option<mpsc::Sender<oneshot::Sender<()>>>,
}

/// Machines by name. Clones are the same one. Its tasks end with the last of them.
#[derive(Clone)]
pub struct Enclosure {
    inner: Arc<Inner>,
}

struct Inner {
    profile: Profile,
    options: EnclosureOptions,
    client: reqwest::Client,
    front: Arc<Service>,
    machines: Mutex<BTreeMap<String, Member>>,
}

/// A machine's BMC; its tasks end with it.
struct Member {
    service: Arc<Service>,
    _tasks: JoinSet<()>,
}

/// Why there is no enclosure.
#[derive(Debug, thiserror::Error)]
pub enum EnclosureError {
    /// The profile that comes along.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Its client for images.
    #[error(transparent)]
    Bmc(#[from] BmcError),
}

impl Enclosure {
    /// One without machines.
    pub fn new(options: EnclosureOptions) -> Result<Self, EnclosureError> {
        let profile = Profile::parse(PROFILE)?;
        let client = client(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).map_err(BmcError::Client)?;
        let nobody = Arc::new(MemoryPower::default());
        let machine = Machine { name: "enclosure".to_owned(), macs: Vec::new(), ..Machine::default() };
        // Nothing is put off at a machine that nobody can name.
        let (front, _) = bmc(&profile, &options, &client, machine, nobody, &mut JoinSet::new());
        let inner = Inner { profile, options, client, front, machines: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Names of its machines.
    pub fn names(&self) -> Vec<String> {
        lock(&self.inner.machines).keys().cloned().collect()
    }

    /// Takes a machine in by its name. One that is there as it is described now stays, with its sessions and overrides.
    /// Needs a tokio runtime.
    pub fn put(&self, machine: Machine, power: Arc<dyn Power>) {
        let mut machines = lock(&self.inner.machines);
        if machines.get(&machine.name).is_some_and(|member| member.service.machine == machine) {
            return;
        }
        let name = machine.name.clone();
        let ids = Ids { system: name.clone(), manager: name.clone(), chassis: name.clone() };
        let profile = Profile { ids, ..self.inner.profile.clone() };
        let mut tasks = JoinSet::new();
        let (service, put_off) = bmc(&profile, &self.inner.options, &self.inner.client, machine, power, &mut tasks);
        let switched = Arc::clone(&service);
        tasks.spawn(async move { switched.switch_later(put_off).await });
        machines.insert(name, Member { service, _tasks: tasks });
    }

    /// Lets a machine go.
    pub fn remove(&self, name: &str) {
        lock(&self.inner.machines).remove(name);
    }

    /// Serves the consoles of its machines over SSH until told to stop: `console NAME` leads to one. `key`: in OpenSSH's
    /// form, what the server is known by.
    ///
    /// # Errors
    /// A key that is none.
    pub async fn serve_consoles(
        &self,
        listener: TcpListener,
        key: &str,
        stop: CancellationToken,
    ) -> Result<(), KeyError> {
        let key = PrivateKey::from_openssh(key)?;
        // It does not hold the machines: they end with the enclosure.
        let inner = Arc::downgrade(&self.inner);
        let find = move |name: &str| {
            let inner = inner.upgrade()?;
            lock(&inner.machines).get(name).map(|member| Arc::clone(&member.service.power))
        };
        let front = Front::of_many(Arc::clone(&self.inner.options.guard), Box::new(find));
        console::serve(listener, key, Arc::new(front), stop).await;
        Ok(())
    }

    /// All paths.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    async fn respond(&self, request: Request) -> Response {
        let path = request.uri().path();
        let below = path.strip_suffix('/').unwrap_or(path).strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
        let mut parts = below.unwrap_or_default().splitn(3, '/');
        let (first, name) = (parts.next().unwrap_or_default(), parts.next());
        let Some((first, kind)) = COLLECTIONS.iter().find(|(collection, _)| *collection == first) else {
            return self.inner.front.respond(request).await.unwrap_or_else(Refusal::into_response);
        };
        if let Err(refusal) = self.inner.front.let_in(request.headers()) {
            return refusal.into_response();
        }
        let Some(name) = name else {
            let own = format!("{ROOT}/{first}");
            let members = self.names().into_iter().map(|name| format!("{own}/{name}"));
            return Json(collection(kind, &own, members)).into_response();
        };
        let mut member = self.member(name);
        if member.is_none() {
            if let Err(refusal) = self.look().await {
                return refusal.into_response();
            }
            member = self.member(name);
        }
        match member {
            Some(service) => service.answer_inside(request).await,
            None => Refusal::missing(path).into_response(),
        }
    }

    fn member(&self, name: &str) -> Option<Arc<Service>> {
        lock(&self.inner.machines).get(name).map(|member| Arc::clone(&member.service))
    }

    async fn look(&self) -> Result<(), Refusal> {
        let Some(looks) = &self.inner.options.looks else { return Ok(()) };
        let (done, looked) = oneshot::channel();
        looks.send(done).await.map_err(|_| Refusal::unavailable())?;
        looked.await.map_err(|_| Refusal::unavailable())
    }
}

async fn answer(Shared(enclosure): Shared<Enclosure>, request: Request) -> Response {
    let mut response = enclosure.respond(request).await;
    response.headers_mut().insert("odata-version", HeaderValue::from_static("4.0"));
    response
}

/// The service of one machine, as it was kept, and what it puts off.
fn bmc(
    profile: &Profile,
    options: &EnclosureOptions,
    client: &reqwest::Client,
    machine: Machine,
    power: Arc<dyn Power>,
    tasks: &mut JoinSet<()>,
) -> (Arc<Service>, mpsc::UnboundedReceiver<&'static [Act]>) {
    let (letters, post) = mpsc::unbounded_channel();
    let (later, put_off) = mpsc::unbounded_channel();
    let mut state = State::new(profile, machine.firmware, SignedDuration::ZERO);
    if let Some(kept) = power.kept() {
        state.restore(kept);
    }
    tasks.spawn(events::deliver(post, client.clone()));
    let offer = |port| Offer { port, name: Some(machine.name.clone()) };
    let console = options.consoles.filter(|_| machine.serial_line).map(offer);
    let service = Service {
        console,
        state: Mutex::new(state),
        guard: Arc::clone(&options.guard),
        faults: Mutex::default(),
        asked: Mutex::default(),
        answers: AtomicU64::new(0),
        switch: tokio::sync::Mutex::default(),
        client: client.clone(),
        profile: profile.clone(),
        machine,
        power,
        images: Images::Fetched(options.images.clone()),
        letters,
        later,
    };
    (Arc::new(service), put_off)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;

    use super::*;
    use crate::bmc::change::Account;

    fn made(images: &std::path::Path) -> (Enclosure, mpsc::Receiver<oneshot::Sender<()>>) {
        let (looks, asked) = mpsc::channel(1);
        let guard = Arc::new(Account { user: "admin".to_owned(), password: "secret".to_owned() });
        let options = EnclosureOptions { guard, consoles: None, images: images.to_owned(), looks: Some(looks) };
        (Enclosure::new(options).expect("an enclosure"), asked)
    }

    async fn asked_for(enclosure: &Enclosure, name: &str, known: bool) -> StatusCode {
        let mut request = Request::builder().uri(format!("{ROOT}/Systems/{name}"));
        if known {
            request = request.header("authorization", "Basic YWRtaW46c2VjcmV0");
        }
        enclosure.respond(request.body(Body::empty()).expect("a request")).await.status()
    }

    #[tokio::test]
    async fn a_machine_is_there_for_the_first_request_after_it_was_made() {
        let dir = tempfile::tempdir().expect("a folder");
        let (enclosure, mut asked) = made(dir.path());
        assert_eq!(asked_for(&enclosure, "new", false).await, StatusCode::UNAUTHORIZED);
        assert!(asked.try_recv().is_err(), "nobody looks for a stranger");
        let looking = enclosure.clone();
        let keeper = async {
            let done = asked.recv().await.expect("somebody asks");
            looking.put(Machine { name: "new".to_owned(), ..Machine::default() }, Arc::new(MemoryPower::default()));
            done.send(()).expect("it waits");
            asked.recv().await.expect("another asks").send(()).expect("it waits");
            drop(asked.recv().await.expect("a third one asks"));
        };
        let client = async {
            assert_eq!(asked_for(&enclosure, "new", true).await, StatusCode::OK);
            assert_eq!(asked_for(&enclosure, "new", true).await, StatusCode::OK, "it is known now");
            assert_eq!(asked_for(&enclosure, "old", true).await, StatusCode::NOT_FOUND);
            let unsure = asked_for(&enclosure, "old", true).await;
            assert_eq!(unsure, StatusCode::SERVICE_UNAVAILABLE, "who cannot look does not say that it is gone");
        };
        tokio::join!(keeper, client);
    }
}
