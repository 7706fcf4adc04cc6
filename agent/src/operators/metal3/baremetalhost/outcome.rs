//! What is decided.

use agent_api::metal3::annotations::RebootMode;
use agent_api::metal3::{
    CredentialsStatus, ErrorType, HardwareDetails, OperationalStatus, ProvisioningState, RaidConfig,
};
use jiff::Timestamp;

/// A decision: changes of the status, then a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Changes of the status, in their order; written before the step is done.
    pub changes: Vec<Change>,
    /// What happens.
    pub step: Step,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The host enters another state.
    Transition(ProvisioningState),
    /// Nothing until a moment, or without one until the host or one of its Secrets changes. A change always ends it.
    Wait {
        /// Why.
        reason: WaitReason,
        /// Until when.
        until: Option<Timestamp>,
    },
    /// Something is done; what comes of it goes to [`super::conclude`].
    Act(Action),
    /// The host was changed: it is decided again.
    Again,
    /// All is cleaned up: the finalizer goes, and the host with it.
    Deleted,
}

/// Why nothing happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The annotation says so.
    Paused,
    /// The host was moved here, and its status cannot be read; why.
    NoStatus(String),
    /// The host has no BMC.
    NoBmc,
    /// The Secret with the BMC's credentials is not there.
    NoCredentials(String),
    /// The Secret lacks something.
    BadCredentials(String),
    /// Ironic does not answer.
    IronicAway(String),
    /// Ironic has no time for it now.
    IronicBusy,
    /// As many hosts as may be are being inspected, provisioned and deprovisioned.
    NoSlot,
    /// The host is detached.
    Detached,
    /// The host is detached and deleted, and shall stay until it is attached again.
    DetachedDeleteDelayed,
    /// Something failed; it is tried again.
    Failed(ErrorType),
    /// Provisioning this image failed too often; it is tried again when the host is changed.
    GaveUp {
        /// How often.
        tries: i64,
    },
    /// The image cannot be written yet; what is missing.
    NotYet(String),
    /// Something is being done.
    Working(Action),
    /// The host is as it shall be; its power is looked at again then.
    Steady,
    /// Ironic does not know whether the host is powered on.
    PowerUnknown,
    /// Clients hold the host powered off.
    HeldOff(Vec<String>),
}

/// What is done with Ironic or with the host's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The status of the annotation becomes the host's, and the annotation goes.
    RestoreStatus,
    /// What the annotation tells becomes what was found in the host, and the annotation goes.
    SaveHardwareDetails,
    /// The finalizer is added.
    AddFinalizer,
    /// The host is made known to Ironic, with its credentials, which are tried.
    Register,
    /// What is in the host is found out.
    Inspect {
        /// Even if it is known.
        again: bool,
        /// The ramdisk is rebooted.
        reboot: bool,
    },
    /// RAID, BIOS and firmware are set up.
    Prepare,
    /// Ironic is told that the host runs an image already.
    Adopt,
    /// BIOS settings and firmware of a host in use are changed.
    Service,
    /// The image is written.
    Provision {
        /// The ramdisk is rebooted.
        reboot: bool,
    },
    /// The host is powered on.
    PowerOn,
    /// The host is powered off.
    PowerOff(RebootMode),
    /// The host is rebooted without being powered off.
    Reboot(RebootMode),
    /// The annotation is removed.
    RemoveAnnotation(&'static str),
    /// The disks are cleaned.
    Deprovision,
    /// The host is powered off for the last time.
    PowerOffForGood,
    /// Ironic forgets the host, which stays as it is.
    Detach,
    /// Ironic forgets the host.
    Forget,
}

/// A change of the status.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Something went wrong: counted.
    Error(ErrorType, String),
    /// Something is wrong, and it is not the host's fault: not counted.
    Note(OperationalStatus, String),
    /// Nothing is wrong any more.
    ClearError,
    /// Something succeeded: errors are counted anew.
    ResetCount,
    /// How the host is.
    Operational(OperationalStatus),
    /// Provisioning the image failed.
    ProvisioningFailed,
    /// The image of the spec is about to be written, to the disk of the spec.
    Attempt,
    /// Tries to write it are counted anew.
    ResetTries,
    /// The image of the spec is what the host has.
    Provisioned,
    /// The host has no image.
    Unprovisioned,
    /// The hints, RAID volumes and so on that were used are forgotten.
    ForgetSettings,
    /// RAID volumes are not known any more.
    ForgetRaid,
    /// These credentials are tried.
    Tried(CredentialsStatus),
    /// These credentials work.
    Good(CredentialsStatus),
    /// Whether the host is powered on.
    Powered(bool),
    /// Registering begins, in whatever state.
    BeginRegister,
    /// Registering ended.
    EndRegister,
    /// Ironic's UUID of the host.
    Id(String),
    /// What was found in the host.
    Hardware(Box<HardwareDetails>),
    /// These RAID volumes are there, and the disk for the image is the one of the spec.
    Prepared(Option<Box<RaidConfig>>),
}

impl Outcome {
    /// A step and no change.
    pub(super) const fn only(step: Step) -> Self {
        Self { changes: Vec::new(), step }
    }

    /// Something to do.
    pub(super) const fn act(action: Action) -> Self {
        Self::only(Step::Act(action))
    }

    /// Another state.
    pub(super) const fn to(state: ProvisioningState) -> Self {
        Self::only(Step::Transition(state))
    }

    /// A wait, with or without an end.
    pub(super) fn wait(reason: WaitReason, until: impl Into<Option<Timestamp>>) -> Self {
        Self::only(Step::Wait { reason, until: until.into() })
    }

    /// Whether the host is worked on in a way that only so many hosts are at a time.
    pub fn takes_slot(&self) -> bool {
        matches!(
            &self.step,
            Step::Transition(
                ProvisioningState::Inspecting | ProvisioningState::Provisioning | ProvisioningState::Deprovisioning
            ) | Step::Act(Action::Inspect { .. } | Action::Provision { .. } | Action::Deprovision)
        )
    }

    /// The same with changes before it.
    #[must_use]
    pub(super) fn with(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
        self.changes.extend(changes);
        self
    }
}
