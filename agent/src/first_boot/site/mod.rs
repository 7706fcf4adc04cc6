//! Finding Site: on a volume labelled `SITE` or `CIDATA`, on the kernel command line, as stored by REST, or as delivered
//! with the appliance.
//!
//! ```text
//! volumes ─┐                     ┌─ the one in use, or signed with its key, or nobody has access ─► checked ─► kept, used
//! stored  ─┼─► candidates ─► may it? ─ no ─► passed over, and told                                     └─ bad: told, and
//! line    ─┘                                                                                              the last good one
//! ```
//! `kept` says who may. Nothing that lies on a volume stops the boot.

use std::fmt;
use std::path::Path;

use agent_api::site::{MOST_BYTES, Site};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Machine;
use kept::{Came, Kept, Owner};
use volumes::NotTaken;

mod kept;
mod volumes;

/// Name of the file on a volume.
const FILE: &str = "site.yaml";
/// Kernel parameter that holds it in base64url.
const PARAMETER: &str = "foothold.site";
/// What REST stored.
pub const STORED: &str = "/var/lib/foothold/site.yaml";
/// What came with the appliance.
const DELIVERED: &str = "/usr/share/foothold/site.yaml";

/// Where Site was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the volume with that label, on that device.
    Volume(String, String),
    /// On the kernel command line.
    CommandLine,
    /// Stored by REST.
    Stored,
    /// Delivered with the appliance.
    Delivered,
    /// The one that was in use before.
    Kept,
    /// Nowhere: everything is as by default.
    Nowhere,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(label, device) => write!(f, "volume `{label}` ({device})"),
            Self::CommandLine => f.write_str("kernel command line"),
            Self::Stored => f.write_str("sent by REST"),
            Self::Delivered => f.write_str("delivered with the appliance"),
            Self::Kept => f.write_str("the one in use before"),
            Self::Nowhere => f.write_str("none"),
        }
    }
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The Site to use.
    pub site: Site,
    /// Where it is from.
    pub origin: Origin,
    /// What is wrong with what was seen beside it, or why it does not count.
    pub passed_over: Vec<String>,
    /// Volumes of that name without a Site.
    pub empty: Vec<String>,
}

/// A Site that may be used.
struct Candidate {
    origin: Origin,
    text: Result<String, NotTaken>,
    signature: Option<String>,
    /// It is on the box's own medium.
    own: bool,
}

/// Site, and where it is from.
///
/// # Errors
/// The one that counts cannot be used, and there was none before it.
pub fn find(machine: &Machine) -> anyhow::Result<Found> {
    let clusters = machine.release().kubernetes.networks();
    let place = machine.at(kept::PLACE);
    let kept = Kept::read(&place);
    let in_use = kept.as_ref().map(|kept| Site::parse_beside(&kept.text, &clusters));
    // What cannot be told opens the box to nobody.
    let claimed = machine.at(kept::CLAIMED).try_exists().unwrap_or(true);
    let owner = match (&kept, &in_use) {
        (Some(kept), Some(Ok(site))) => kept.owner(site, claimed),
        (Some(kept), _) if matches!(kept.from, Came::OwnMedium | Came::Image) && !claimed => Owner::OwnMedium,
        (Some(_), _) => Owner::Token,
        (None, _) if claimed => Owner::Token,
        (None, _) => Owner::Nobody,
    };
    let in_use = in_use.and_then(Result::ok);
    let (mut passed_over, mut empty) = (Vec::new(), Vec::new());
    for candidate in candidates(machine, owner) {
        let Candidate { origin, text, .. } = &candidate;
        let text = match text {
            Ok(text) => text,
            Err(NotTaken::Empty(why)) => {
                empty.push(format!("{origin}: {why}"));
                continue;
            }
            Err(NotTaken::Bad(why)) => {
                passed_over.push(format!("{origin}: {why}"));
                continue;
            }
        };
        if let Err(why) = may(&candidate, text, owner, kept.as_ref().zip(in_use.as_ref())) {
            passed_over.push(format!("{origin}: {why}"));
            continue;
        }
        match Site::parse_beside(text, &clusters) {
            Ok(site) => {
                Kept::keep(kept.as_ref(), &place, text, candidate.came(kept.as_ref()))?;
                return Ok(Found { site, origin: candidate.origin, passed_over, empty });
            }
            Err(error) => {
                passed_over.push(format!("{origin}: {error}"));
                let Some(site) = in_use else { anyhow::bail!("reading `{FILE}`: {}", passed_over.join("; ")) };
                return Ok(Found { site, origin: Origin::Kept, passed_over, empty });
            }
        }
    }
    // Who takes a volume away opens the box to nobody.
    match in_use.filter(|_| owner != Owner::Nobody) {
        Some(site) => Ok(Found { site, origin: Origin::Kept, passed_over, empty }),
        None => Ok(Found { site: Site::default(), origin: Origin::Nowhere, passed_over, empty }),
    }
}

impl Candidate {
    fn came(&self, kept: Option<&Kept>) -> Came {
        let same = |kept: &&Kept| self.text.as_ref().is_ok_and(|text| *text == kept.text);
        match (&self.origin, kept.filter(same)) {
            // A copy of what is in use changes nothing, wherever it lies.
            (_, Some(kept)) if self.origin != Origin::Stored => kept.from,
            (Origin::Stored, _) => Came::Rest,
            (Origin::Delivered, _) => Came::Image,
            (Origin::Volume(..), _) if self.own => Came::OwnMedium,
            _ => Came::Elsewhere,
        }
    }
}

/// Whether the candidate may be used on a box with this owner.
fn may(candidate: &Candidate, text: &str, owner: Owner, in_use: Option<(&Kept, &Site)>) -> Result<(), String> {
    if in_use.is_some_and(|(kept, _)| kept.text == text) {
        return Ok(());
    }
    let told = match (&candidate.origin, owner) {
        (_, Owner::Nobody) | (Origin::Stored | Origin::Delivered, _) => return Ok(()),
        (_, Owner::OwnMedium) if candidate.own => return Ok(()),
        (_, Owner::OwnMedium) => "the box has its Site from its own medium",
        (_, Owner::Token) => "somebody has access to this box already",
    };
    let unsigned = match in_use {
        Some((kept, site)) => match kept.is_signed(site, text, candidate.signature.as_deref()) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        },
        None => "no Site in use names `access.siteKeys`".to_owned(),
    };
    Err(format!("it is another Site than the one in use, and does not count: {told}, and {unsigned}; send it by REST"))
}

/// All that may hold a Site, in the order in which it counts.
fn candidates(machine: &Machine, owner: Owner) -> Vec<Candidate> {
    let on_volumes = volumes::find(&machine.at("/"), &machine.facts().medium).into_iter().map(|volume| {
        let contents = volumes::read(machine, &volume);
        let (text, signature) = match contents {
            Ok(contents) => (Ok(contents.text), contents.signature),
            Err(why) => (Err(why), None),
        };
        Candidate { origin: Origin::Volume(volume.label, volume.device), text, signature, own: volume.own }
    });
    let on_line = machine.parameter(PARAMETER).map(|value| {
        let text = URL_SAFE_NO_PAD.decode(value.trim_end_matches('='));
        let text = text.map_err(|error| format!("`{PARAMETER}=` is not base64url: {error}"));
        plain(Origin::CommandLine, text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    });
    let file = |path: &str, origin: Origin| Some(plain(origin, of_file(&machine.at(path))?));
    let stored = file(STORED, Origin::Stored);
    let mut all: Vec<Candidate> = on_volumes.chain(on_line).collect();
    // What was sent by REST comes from somebody who has access.
    all.splice(if owner == Owner::Nobody { all.len()..all.len() } else { 0..0 }, stored);
    if owner != Owner::Token {
        all.extend(file(DELIVERED, Origin::Delivered));
    }
    all
}

fn plain(origin: Origin, text: Result<String, String>) -> Candidate {
    let text = text.map_err(NotTaken::Bad);
    Candidate { origin, text, signature: None, own: false }
}

/// The text of a file; nothing when it is not there.
fn of_file(path: &Path) -> Option<Result<String, String>> {
    let length = fs_err::metadata(path).map(|found| found.len());
    if length.as_ref().is_ok_and(|length| *length > MOST_BYTES as u64) {
        return Some(Err(format!("it has more than {} KiB", MOST_BYTES / 1024)));
    }
    match fs_err::read_to_string(path) {
        Ok(text) => Some(Ok(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
