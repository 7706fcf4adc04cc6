//! The decision: first what holds in every state, then the state's own.

use agent_api::metal3::annotations::{
    self, DETACHED, DeleteAction, FINALIZER, HARDWARE_DETAILS, INSPECT, PAUSED, STATUS,
};
use agent_api::metal3::{
    BareMetalHost, BareMetalHostStatus, CredentialsStatus, ErrorType, HardwareDetails, OperationalStatus,
    ProvisioningState, SecretReference,
};
use jiff::{SignedDuration, Timestamp};

use super::outcome::{Action, Change, Outcome, Step, WaitReason};
use super::power;
use crate::operators::kit::backoff;

/// Until credentials are looked for again.
const CREDENTIALS: SignedDuration = SignedDuration::from_secs(10);
/// Until Ironic is asked again.
const IRONIC: SignedDuration = SignedDuration::from_secs(30);
/// Until Ironic is asked again when it was only busy.
const BUSY: SignedDuration = SignedDuration::from_secs(5);
/// Silence of Ironic that is no error yet: it is restarted, or busy beside others.
const SILENCE: SignedDuration = SignedDuration::from_secs(60);
/// Until a host that nothing is done with is looked at again.
const IDLE: SignedDuration = SignedDuration::from_secs(600);
/// Errors after which a deletion goes on without what fails.
pub(super) const PATIENCE: i64 = 3;

/// A version of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretVersion {
    /// Name of the Secret.
    pub name: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Its `resourceVersion`.
    pub version: String,
}

/// The BMC's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BmcSecret {
    /// There are no credentials, for this reason.
    Missing(String),
    /// They cannot be used, or the address cannot; why.
    Bad(String),
    /// They are there.
    Found(SecretVersion),
}

/// Whether Ironic answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ironic {
    /// It does.
    Ready,
    /// It does, to others: it has not found the time for this question.
    Busy,
    /// It does not.
    Away {
        /// What was heard instead.
        heard: String,
        /// When that was first so.
        since: Timestamp,
    },
}

/// Whether one more host may be inspected, provisioned or deprovisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The host has one already, or needs none: virtual media.
    Held,
    /// There is one, and it was reserved for this host.
    Free,
    /// There is none.
    None,
}

/// Limits of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tries to provision an image.
    pub provisioning_tries: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { provisioning_tries: 5 }
    }
}

/// A change of BIOS settings or firmware that is asked for and can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// There is none.
    #[default]
    None,
    /// Before the host is in use.
    Prepare,
    /// Also while it is in use, at its next reboot.
    Service,
}

/// What is known of the host's BIOS settings and firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What is asked for.
    pub wish: Wish,
    /// Whether something else is asked for than what failed.
    pub changed: bool,
    /// Whether Ironic is at it with a host in use, or failed.
    pub servicing: bool,
}

/// What is known besides the host itself.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing, whatever the others say")]
pub struct Facts {
    /// Now.
    pub now: Timestamp,
    /// From 0 to 1: spreads waits.
    pub chance: f64,
    /// The BMC's credentials.
    pub credentials: BmcSecret,
    /// Whether Ironic answers.
    pub ironic: Ironic,
    /// Whether Ironic knows the host as its spec and its credentials say.
    pub registered: bool,
    /// Whether Ironic is at work with the host and takes no changes of it meanwhile.
    pub busy: bool,
    /// Whether Ironic knows that the host runs an image.
    pub adopted: bool,
    /// Whether one more host may be worked on.
    pub slot: Slot,
    /// Whether RAID volumes are not as asked for.
    pub unprepared: bool,
    /// BIOS settings and firmware.
    pub firmware: Standing,
    /// What is kept beside the host of what was found in it; not looked for where that is known.
    pub hardware: Option<HardwareDetails>,
    /// Whether the host is powered on, when that is known.
    pub powered_on: Option<bool>,
    /// `metadata.generation` that the last error was about.
    pub failed_generation: Option<i64>,
    /// Limits of the controller.
    pub limits: Limits,
}

impl Facts {
    /// A moment after now.
    pub(super) fn after(&self, pause: SignedDuration) -> Timestamp {
        self.now.checked_add(pause).unwrap_or(Timestamp::MAX)
    }

    fn secret(&self) -> Option<&SecretVersion> {
        match &self.credentials {
            BmcSecret::Found(secret) => Some(secret),
            BmcSecret::Missing(_) | BmcSecret::Bad(_) => None,
        }
    }
}

/// Whether what is in a host is not known, and will not be found out.
pub(super) fn lacks_hardware(host: &BareMetalHost) -> bool {
    host.inspection_disabled() && host.status.as_ref().is_none_or(|status| status.hardware.is_none())
}

/// What is to be done with a host now.
pub fn decide(host: &BareMetalHost, facts: &Facts) -> Outcome {
    let status = host.status.clone().unwrap_or_default();
    let view = View { host, status: &status, facts, state: status.provisioning.state };
    view.everywhere().unwrap_or_else(|| view.limited(view.by_state()))
}

/// A host and what is known about it.
pub(super) struct View<'a> {
    pub host: &'a BareMetalHost,
    pub status: &'a BareMetalHostStatus,
    pub facts: &'a Facts,
    pub state: ProvisioningState,
}

impl View<'_> {
    pub(super) const fn deleting(&self) -> bool {
        self.host.metadata.deletion_timestamp.is_some()
    }

    /// What holds in every state, in this order.
    fn everywhere(&self) -> Option<Outcome> {
        self.paused()
            .or_else(|| self.restored())
            .or_else(|| self.described())
            .or_else(|| self.finalizer())
            .or_else(|| self.found_before())
            .or_else(|| self.deleted_while_detached())
            .or_else(|| self.credentials())
            .or_else(|| self.ironic())
            .or_else(|| self.deletion_begins())
            .or_else(|| self.detached())
            .or_else(|| self.backing_off())
            .or_else(|| self.registration())
    }

    fn paused(&self) -> Option<Outcome> {
        self.host.annotation(PAUSED).map(|_| Outcome::wait(WaitReason::Paused, None))
    }

    /// A host that was moved here brings its status along; it counts only where there is none yet.
    fn restored(&self) -> Option<Outcome> {
        let value = self.host.annotation(STATUS)?;
        // Conditions are no status yet: a host that is paused when it arrives has them, too.
        let fresh = BareMetalHostStatus { conditions: None, ..self.status.clone() } == BareMetalHostStatus::default();
        if !fresh || value.is_empty() {
            return Some(Outcome::act(Action::RemoveAnnotation(STATUS)));
        }
        // Without what it says, a server that is in use would be inspected.
        let wrong = annotations::status(value).err().filter(|_| !self.deleting());
        Some(wrong.map_or_else(
            || Outcome::act(Action::RestoreStatus),
            |why| Outcome::wait(WaitReason::NoStatus(why.to_string()), None),
        ))
    }

    /// What inspection would have found may be told instead; it counts only where nothing was found yet.
    fn described(&self) -> Option<Outcome> {
        let value = self.host.annotation(HARDWARE_DETAILS)?;
        if value.is_empty() || self.status.hardware.is_some() {
            return Some(Outcome::act(Action::RemoveAnnotation(HARDWARE_DETAILS)));
        }
        self.host.inspection_disabled().then(|| Outcome::act(Action::SaveHardwareDetails))
    }

    /// What is kept beside a host that is not inspected is what is in it: nobody else will tell.
    fn found_before(&self) -> Option<Outcome> {
        let found = self.facts.hardware.as_ref().filter(|_| lacks_hardware(self.host))?;
        Some(Outcome::only(Step::Again).with([Change::Hardware(Box::new(found.clone()))]))
    }

    fn finalizer(&self) -> Option<Outcome> {
        let has = self.host.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER);
        match (has, self.deleting()) {
            (true, _) => None,
            (false, false) => Some(Outcome::act(Action::AddFinalizer)),
            (false, true) => Some(Outcome::only(Step::Deleted)),
        }
    }

    /// The way out that always works: neither Ironic nor credentials are asked, the server stays as it is. Whether the
    /// controller has seen the annotation before makes no difference.
    fn deleted_while_detached(&self) -> Option<Outcome> {
        if !self.deleting() || self.state == ProvisioningState::Deleting {
            return None;
        }
        let seen = self.status.operational_status == OperationalStatus::Detached;
        match annotations::detached(self.host) {
            Some(asked) if asked.delete_action == DeleteAction::Delete => {
                Some(Outcome::to(ProvisioningState::Deleting))
            }
            // To be attached again, and then deleted like any other.
            Some(_) if seen => Some(Outcome::wait(WaitReason::DetachedDeleteDelayed, self.facts.after(IDLE))),
            Some(_) | None => None,
        }
    }

    fn credentials(&self) -> Option<Outcome> {
        let needed = self.host.spec.has_bmc() && !self.deleting() && self.host.annotation(DETACHED).is_none();
        let (message, reason, until) = match &self.facts.credentials {
            BmcSecret::Found(_) => return None,
            _ if !needed => return None,
            BmcSecret::Missing(why) => {
                (why, WaitReason::NoCredentials(why.clone()), Some(self.facts.after(CREDENTIALS)))
            }
            BmcSecret::Bad(why) => (why, WaitReason::BadCredentials(why.clone()), None),
        };
        let told = self.status.error_type == Some(ErrorType::Registration) && self.status.error_message == *message;
        let change = (!told).then(|| Change::Error(ErrorType::Registration, message.clone()));
        Some(Outcome::wait(reason, until).with(change))
    }

    fn ironic(&self) -> Option<Outcome> {
        let unmanaged = matches!(self.state, ProvisioningState::None | ProvisioningState::Unmanaged);
        // A host that it never knew, and one that somebody wants to be let go, need not be forgotten by it.
        let unknown = self.deleting() && self.status.provisioning.id.is_empty();
        let let_go = self.state == ProvisioningState::Deleting && self.host.annotation(DETACHED).is_some();
        let no_need = unmanaged || unknown || let_go;
        let (heard, since) = match &self.facts.ironic {
            Ironic::Ready => return None,
            _ if no_need => return None,
            // Nothing is wrong with the host, and what it waited for it still waits for.
            Ironic::Busy => return Some(Outcome::wait(WaitReason::IronicBusy, self.facts.after(BUSY))),
            Ironic::Away { heard, since } => (heard, since),
        };
        let mut message = format!("Ironic does not answer: {heard}");
        if self.deleting() {
            message.push_str("; hint: the annotation `baremetalhost.metal3.io/detached` lets the host go without it");
        }
        // The user who deletes the host learns at once what helps.
        // What is wrong with the host itself stays to be read.
        let bad =
            self.status.error_type.is_none() && (self.deleting() || self.facts.now.duration_since(*since) >= SILENCE);
        let note = Change::Note(OperationalStatus::Error, message.clone());
        let change = (bad && self.status.error_message != message).then_some(note);
        Some(Outcome::wait(WaitReason::IronicAway(message), self.facts.after(IRONIC)).with(change))
    }

    /// Where a deletion leads to from each state.
    fn deletion_begins(&self) -> Option<Outcome> {
        if !self.deleting() {
            return None;
        }
        // It shall be kept, and was not seen to be detached yet.
        if let Some(asked) = annotations::detached(self.host).filter(|_| self.state != ProvisioningState::Deleting) {
            let wait = || Outcome::wait(WaitReason::DetachedDeleteDelayed, self.facts.after(IDLE));
            return if self.may_detach(asked.force) { self.detached() } else { Some(wait()) };
        }
        let lost = self.status.error_type == Some(ErrorType::Registration) && self.status.error_count > PATIENCE;
        let next = match self.state {
            ProvisioningState::None | ProvisioningState::Unmanaged | ProvisioningState::Registering => {
                ProvisioningState::Deleting
            }
            ProvisioningState::Provisioning | ProvisioningState::Provisioned => ProvisioningState::Deprovisioning,
            ProvisioningState::MatchProfile
            | ProvisioningState::Inspecting
            | ProvisioningState::Preparing
            | ProvisioningState::Ready
            | ProvisioningState::Available
            | ProvisioningState::ExternallyProvisioned => ProvisioningState::PoweringOffBeforeDelete,
            ProvisioningState::Deprovisioning | ProvisioningState::PoweringOffBeforeDelete if lost => {
                ProvisioningState::Deleting
            }
            ProvisioningState::Deprovisioning
            | ProvisioningState::PoweringOffBeforeDelete
            | ProvisioningState::Deleting => return None,
        };
        Some(self.limited(Outcome::to(next)))
    }

    fn detached(&self) -> Option<Outcome> {
        let seen = self.status.operational_status == OperationalStatus::Detached;
        let asked = annotations::detached(self.host).filter(|asked| self.may_detach(asked.force));
        if asked.is_some() {
            if seen {
                return Some(Outcome::wait(WaitReason::Detached, self.facts.after(IDLE)));
            }
            if matches!(self.facts.ironic, Ironic::Away { .. }) {
                // Only a host that Ironic never knew comes this far without it.
                let change = Change::Operational(OperationalStatus::Detached);
                return Some(Outcome::wait(WaitReason::Detached, self.facts.after(IDLE)).with([change]));
            }
            return Some(Outcome::act(Action::Detach));
        }
        if self.status.error_type == Some(ErrorType::Detach) {
            return Some(Outcome::only(Step::Again).with([Change::ClearError, Change::ResetCount]));
        }
        seen.then(|| {
            let failed = self.status.error_type.is_some();
            let now = if failed { OperationalStatus::Error } else { OperationalStatus::Ok };
            Outcome::only(Step::Again).with([Change::Operational(now)])
        })
    }

    /// Hosts are detached where nothing is being done with them; by force elsewhere.
    const fn may_detach(&self, force: bool) -> bool {
        match self.state {
            ProvisioningState::Provisioned
            | ProvisioningState::ExternallyProvisioned
            | ProvisioningState::Ready
            | ProvisioningState::Available => true,
            ProvisioningState::Deleting => false,
            ProvisioningState::None
            | ProvisioningState::Unmanaged
            | ProvisioningState::Registering
            | ProvisioningState::MatchProfile
            | ProvisioningState::Inspecting
            | ProvisioningState::Preparing
            | ProvisioningState::Provisioning
            | ProvisioningState::Deprovisioning
            | ProvisioningState::PoweringOffBeforeDelete => force,
        }
    }

    /// After an error, the same is tried again later; at once when the user changed something.
    fn backing_off(&self) -> Option<Outcome> {
        let kind = self.status.error_type?;
        // An annotation that switches inspection off changes no generation.
        let skipped = self.state == ProvisioningState::Inspecting && self.host.inspection_disabled();
        if self.status.error_count == 0 || self.state == ProvisioningState::Provisioning || skipped {
            return None;
        }
        let changed = self.is_changed()
            || self.facts.secret().is_some_and(|secret| !same(self.status.tried_credentials.as_ref(), secret));
        let since = self.status.last_updated.map_or(self.facts.now, |time| time.0);
        let until = backoff::until(since, self.status.error_count, self.facts.chance);
        // A clock that was set back would make the wait as long as it was wrong.
        let changed = changed || since > self.facts.now;
        let mended = self.facts.firmware.changed && matches!(kind, ErrorType::Preparation | ErrorType::Servicing);
        let over = changed || mended || self.facts.now >= until;
        (!over).then(|| Outcome::wait(WaitReason::Failed(kind), Some(until)))
    }

    /// Ironic must know the host before anything is done with it, in every state: it may have lost its database.
    fn registration(&self) -> Option<Outcome> {
        let secret = self.facts.secret()?;
        let needless = matches!(
            self.state,
            ProvisioningState::None
                | ProvisioningState::Unmanaged
                | ProvisioningState::MatchProfile
                | ProvisioningState::Deleting
        );
        // What Ironic is at work with takes no other credentials: they are tried after it.
        let good = self.facts.busy || same(self.status.good_credentials.as_ref(), secret);
        let failed =
            matches!(self.status.error_type, Some(ErrorType::Registration | ErrorType::ProvisionedRegistration));
        if needless || self.facts.registered && good && !failed {
            return None;
        }
        let tried = Change::Tried(version(secret));
        Some(Outcome::act(Action::Register).with([tried, Change::BeginRegister]))
    }

    fn by_state(&self) -> Outcome {
        match self.state {
            ProvisioningState::None | ProvisioningState::Unmanaged if self.host.spec.has_bmc() => {
                Outcome::to(ProvisioningState::Registering)
            }
            ProvisioningState::None => {
                Outcome::to(ProvisioningState::Unmanaged).with([Change::Operational(OperationalStatus::Discovered)])
            }
            ProvisioningState::Unmanaged => Outcome::wait(WaitReason::NoBmc, self.facts.after(IDLE)),
            ProvisioningState::Registering => self.registered(),
            ProvisioningState::MatchProfile => Outcome::to(ProvisioningState::Preparing).with([Change::ResetCount]),
            ProvisioningState::Inspecting => self.inspecting(),
            ProvisioningState::Preparing => Outcome::act(Action::Prepare),
            ProvisioningState::Ready | ProvisioningState::Available => self.available(),
            ProvisioningState::Provisioning => self.provisioning(),
            ProvisioningState::Provisioned if self.host.image_withdrawn() => {
                Outcome::to(ProvisioningState::Deprovisioning)
            }
            ProvisioningState::Provisioned => power::steady(self),
            ProvisioningState::ExternallyProvisioned if self.host.spec.externally_provisioned() => power::steady(self),
            ProvisioningState::ExternallyProvisioned => {
                Outcome::to(ProvisioningState::Provisioned).with([Change::Provisioned])
            }
            ProvisioningState::Deprovisioning => Outcome::act(Action::Deprovision),
            ProvisioningState::PoweringOffBeforeDelete => Outcome::act(Action::PowerOffForGood),
            ProvisioningState::Deleting if matches!(self.facts.ironic, Ironic::Away { .. }) => {
                Outcome::only(Step::Deleted)
            }
            ProvisioningState::Deleting => Outcome::act(Action::Forget),
        }
    }

    fn registered(&self) -> Outcome {
        let next = if self.host.spec.externally_provisioned() {
            ProvisioningState::ExternallyProvisioned
        } else if self.host.inspection_disabled() {
            ProvisioningState::Preparing
        } else {
            ProvisioningState::Inspecting
        };
        Outcome::to(next).with([Change::ResetCount])
    }

    fn inspecting(&self) -> Outcome {
        // The way out for a host that cannot be inspected.
        if self.host.inspection_disabled() {
            return Outcome::to(ProvisioningState::Preparing).with([Change::ClearError, Change::ResetCount]);
        }
        let again = self.host.annotation(INSPECT).is_some_and(|value| value != "disabled");
        Outcome::act(Action::Inspect { again, reboot: annotations::reboots(self.host).force })
    }

    fn available(&self) -> Outcome {
        if self.host.spec.externally_provisioned() {
            return Outcome::to(ProvisioningState::ExternallyProvisioned).with([Change::ForgetSettings]);
        }
        if self.host.annotation(INSPECT).is_some_and(|value| value != "disabled") {
            return Outcome::to(ProvisioningState::Inspecting);
        }
        if self.facts.unprepared || self.facts.firmware.wish != Wish::None {
            return Outcome::to(ProvisioningState::Preparing);
        }
        if !self.host.needs_provisioning() {
            return power::steady(self);
        }
        let tries = self.status.provisioning_fail_count;
        let gave_up = tries >= self.facts.limits.provisioning_tries;
        if gave_up && self.status.last_attempted_image == self.host.spec.image && !self.is_changed() {
            return Outcome::wait(WaitReason::GaveUp { tries }, None);
        }
        let anew = gave_up.then_some(Change::ResetTries);
        Outcome::to(ProvisioningState::Provisioning).with([Change::ClearError, Change::Attempt]).with(anew)
    }

    /// Whether the user asks for something else than what the last error was about.
    fn is_changed(&self) -> bool {
        self.facts.failed_generation.is_some_and(|failed| Some(failed) != self.host.metadata.generation)
    }

    /// Whether another image, or another disk for it, is asked for than what is being written.
    fn is_overtaken(&self) -> bool {
        let spec = &self.host.spec;
        let hints = self.status.provisioning.root_device_hints != spec.root_device_hints;
        self.status.last_attempted_image.is_some() && (self.status.last_attempted_image != spec.image || hints)
    }

    fn provisioning(&self) -> Outcome {
        if self.status.error_type.is_some() || self.host.image_withdrawn() || self.is_overtaken() {
            return Outcome::to(ProvisioningState::Deprovisioning);
        }
        Outcome::act(Action::Provision { reboot: annotations::reboots(self.host).force })
    }

    /// Only so many hosts are inspected, provisioned and deprovisioned at a time.
    fn limited(&self, outcome: Outcome) -> Outcome {
        let delayed = self.status.operational_status == OperationalStatus::Delayed;
        if outcome.takes_slot() && self.facts.slot == Slot::None {
            let change = (!delayed).then_some(Change::Operational(OperationalStatus::Delayed));
            let pause = backoff::pause(1, self.facts.chance);
            return Outcome::wait(WaitReason::NoSlot, self.facts.after(pause)).with(change);
        }
        // What was noted in passing is over, now that something happens.
        let noted = is_noted(self.status);
        // What provisioning waits for is told until it goes on.
        if delayed || noted && !matches!(outcome.step, Step::Act(Action::Provision { .. })) {
            return Outcome { changes: [vec![Change::ClearError], outcome.changes].concat(), ..outcome };
        }
        outcome
    }
}

/// Whether something is wrong that is not the host's fault.
pub(super) fn is_noted(status: &BareMetalHostStatus) -> bool {
    status.operational_status == OperationalStatus::Error && status.error_type.is_none()
}

/// Whether a saved version is the one that there is.
fn same(saved: Option<&CredentialsStatus>, secret: &SecretVersion) -> bool {
    saved == Some(&version(secret))
}

/// A version as the status has it.
pub(super) fn version(secret: &SecretVersion) -> CredentialsStatus {
    CredentialsStatus {
        credentials: Some(SecretReference {
            name: Some(secret.name.clone()),
            namespace: Some(secret.namespace.clone()),
        }),
        credentials_version: Some(secret.version.clone()),
    }
}
