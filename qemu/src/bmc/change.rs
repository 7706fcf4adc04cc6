//! Requests that change something: decided here without I/O, done by the server.

use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::clock;
use super::place::Place;
use super::power::{Act, Mode, steps};
use super::profile::{Insert, Profile};
use super::refusal::Refusal;
use super::state::{Enabled, Medium, Session, State, Subscription, VIRTUAL_CD};

/// Sessions that are kept; the oldest goes for another one.
const MOST_SESSIONS: usize = 64;

/// What is left to do, and what is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is done; the answer is the document at that place, with this status.
    Done(Place, StatusCode),
    /// It is done; the answer is empty.
    Empty,
    /// A session was opened: the token goes into a header.
    Opened { id: String, token: String },
    /// The machine is to do this, in this order.
    Power(&'static [Act]),
    /// The drive is to have this medium, or none.
    Medium(usize, Option<Medium>),
    /// Subscribers are to be told.
    Tell(Value),
}

/// Who may log in.
pub trait Guard: Send + Sync {
    /// Whether this is the name and the password of somebody.
    fn lets_in(&self, user: &str, password: &str) -> bool;
}

/// One account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub user: String,
    pub password: String,
}

impl Guard for Account {
    fn lets_in(&self, user: &str, password: &str) -> bool {
        user == self.user && password == self.password
    }
}

/// A request that is not GET or HEAD.
pub(super) struct Change<'a> {
    pub profile: &'a Profile,
    pub guard: &'a dyn Guard,
    pub place: Place,
    pub body: Value,
    /// Whether the machine is on, in truth.
    pub on: bool,
    pub now: Timestamp,
}

type Decided = Result<Outcome, Refusal>;

impl Change<'_> {
    /// `PATCH`.
    pub fn patch(&self, state: &mut State) -> Decided {
        let body = self.object()?;
        match &self.place {
            Place::System => self.system(state, body)?,
            Place::BiosSettings => bios(state, body)?,
            Place::Manager => self.manager(state, body)?,
            Place::Medium(_, index) if self.profile.media.insert == Insert::Patch => {
                let Some(image) = body.get("Image") else { return Err(missing("Image")) };
                return medium(*index, image, body);
            }
            _ => return Err(Refusal::method()),
        }
        Ok(Outcome::Done(self.place.clone(), StatusCode::OK))
    }

    /// `POST`.
    pub fn post(&self, state: &mut State) -> Decided {
        match &self.place {
            Place::Reset => self.reset(),
            Place::Insert(index) => {
                let body = self.object()?;
                let image = body.get("Image").filter(|image| image.is_string());
                let image = image.ok_or_else(|| Refusal::parameter_missing("InsertMedia", "Image"))?;
                if state.media.get(*index).is_some_and(Option::is_some) {
                    let message = "There is a medium in the drive already.";
                    return Err(Refusal::new(StatusCode::CONFLICT, "ResourceInUse", message, &[]));
                }
                medium(*index, image, body)
            }
            Place::Eject(index) => Ok(Outcome::Medium(*index, None)),
            Place::Sessions => self.open(state),
            Place::Subscriptions => self.subscribe(state),
            Place::ImportConfiguration => self.import(state),
            Place::TestEvent => Ok(Outcome::Tell(super::events::test(self.object()?))),
            _ => Err(Refusal::method()),
        }
    }

    /// `DELETE`.
    pub fn delete(&self, state: &mut State) -> Decided {
        let gone = match &self.place {
            Place::Session(id) => state.sessions.remove(id).is_some(),
            Place::Subscription(id) => state.subscriptions.remove(id).is_some(),
            _ => return Err(Refusal::method()),
        };
        if gone { Ok(Outcome::Empty) } else { Err(Refusal::missing("")) }
    }

    fn object(&self) -> Result<&Map<String, Value>, Refusal> {
        self.body.as_object().ok_or_else(Refusal::json)
    }

    fn system(&self, state: &mut State, body: &Map<String, Value>) -> Result<(), Refusal> {
        let mut next = state.boot.clone();
        for (name, value) in body {
            match name.as_str() {
                "Boot" => {
                    let boot = value.as_object().ok_or_else(|| Refusal::kind("Boot", &value.to_string()))?;
                    for (name, value) in boot {
                        self.boot(&mut next, name, value)?;
                    }
                }
                "AssetTag" => text(name, value)?.clone_into(&mut state.asset_tag),
                _ => return Err(Refusal::unknown(name)),
            }
        }
        state.boot = next;
        Ok(())
    }

    fn boot(&self, boot: &mut super::state::Override, name: &str, value: &Value) -> Result<(), Refusal> {
        let word = text(name, value)?;
        match name {
            "BootSourceOverrideEnabled" => {
                let known = Enabled::ALL.iter().find(|(known, _)| *known == word);
                boot.enabled = known.ok_or_else(|| Refusal::not_in_list(name, word))?.1;
            }
            "BootSourceOverrideTarget" => {
                if !self.profile.targets.iter().any(|known| known == word) {
                    return Err(Refusal::not_in_list(name, word));
                }
                word.clone_into(&mut boot.target);
            }
            "BootSourceOverrideMode" if self.profile.mode_override => {
                boot.mode = match word {
                    "UEFI" => Mode::Uefi,
                    "Legacy" => Mode::Legacy,
                    _ => return Err(Refusal::not_in_list(name, word)),
                };
            }
            _ => return Err(Refusal::unknown(name)),
        }
        Ok(())
    }

    fn manager(&self, state: &mut State, body: &Map<String, Value>) -> Result<(), Refusal> {
        for (name, value) in body {
            match name.as_str() {
                "DateTime" if self.profile.clock => {
                    let word = text(name, value)?;
                    state.skew = clock::skew(self.now, word).ok_or_else(|| Refusal::kind(name, word))?;
                }
                _ => return Err(Refusal::unknown(name)),
            }
        }
        Ok(())
    }

    fn reset(&self) -> Decided {
        let wanted = self.object()?.get("ResetType").and_then(Value::as_str);
        let wanted = wanted.ok_or_else(|| Refusal::parameter_missing("ComputerSystem.Reset", "ResetType"))?;
        if !self.profile.resets.iter().any(|known| known == wanted) {
            return Err(Refusal::parameter_value("ComputerSystem.Reset", "ResetType", wanted));
        }
        steps(wanted, self.on).map(Outcome::Power).ok_or_else(|| Refusal::state(wanted))
    }

    fn open(&self, state: &mut State) -> Decided {
        let body = self.object()?;
        let word = |name| body.get(name).and_then(Value::as_str).ok_or_else(|| missing(name));
        let (user, password) = (word("UserName")?, word("Password")?);
        if !self.guard.lets_in(user, password) {
            return Err(Refusal::no_session());
        }
        while state.sessions.len() >= MOST_SESSIONS {
            let oldest = state.sessions.keys().min_by_key(|id| id.parse::<u64>().unwrap_or(0)).cloned();
            state.sessions.remove(&oldest.unwrap_or_default());
        }
        let id = state.next().to_string();
        let token = hex(&rand::random::<[u8; 16]>());
        state.sessions.insert(id.clone(), Session { user: user.to_owned(), token: token.clone() });
        Ok(Outcome::Opened { id, token })
    }

    /// A piece of a server configuration profile: which drive is booted from, and for how long.
    fn import(&self, state: &mut State) -> Decided {
        const ACTION: &str = "OemManager.ImportSystemConfiguration";
        let piece = self.object()?.get("ImportBuffer").and_then(Value::as_str);
        let piece = piece.ok_or_else(|| Refusal::parameter_missing(ACTION, "ImportBuffer"))?;
        let refused = || Refusal::parameter_value(ACTION, "ImportBuffer", piece);
        if !piece.contains(&format!("<Component FQDD=\"{}\">", self.profile.ids.manager)) {
            return Err(refused());
        }
        let enabled = match attribute(piece, "ServerBoot.1#BootOnce") {
            Some("Enabled") => Enabled::Once,
            Some("Disabled") => Enabled::Continuous,
            _ => return Err(refused()),
        };
        if attribute(piece, "ServerBoot.1#FirstBootDevice") != Some(VIRTUAL_CD) {
            return Err(refused());
        }
        state.boot.enabled = enabled;
        VIRTUAL_CD.clone_into(&mut state.boot.target);
        let id = format!("JID_{:012}", state.next());
        state.tasks.insert(id.clone(), "Import Configuration");
        Ok(Outcome::Done(Place::Task(id), StatusCode::ACCEPTED))
    }

    fn subscribe(&self, state: &mut State) -> Decided {
        let body = self.object()?;
        let destination = body.get("Destination").and_then(Value::as_str).ok_or_else(|| missing("Destination"))?;
        if !["http://", "https://"].iter().any(|scheme| destination.starts_with(scheme)) {
            return Err(Refusal::not_in_list("Destination", destination));
        }
        match body.get("Protocol").and_then(Value::as_str) {
            Some("Redfish") => {}
            Some(other) => return Err(Refusal::not_in_list("Protocol", other)),
            None => return Err(missing("Protocol")),
        }
        let context = body.get("Context").and_then(Value::as_str).unwrap_or_default().to_owned();
        let headers = body.get("HttpHeaders").and_then(Value::as_array).into_iter().flatten();
        let headers = headers.filter_map(Value::as_object).flatten();
        let headers = headers.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let id = state.next().to_string();
        let subscription = Subscription { destination: destination.to_owned(), context, headers };
        state.subscriptions.insert(id.clone(), subscription);
        Ok(Outcome::Done(Place::Subscription(id), StatusCode::CREATED))
    }
}

fn bios(state: &mut State, body: &Map<String, Value>) -> Result<(), Refusal> {
    let attributes = body.get("Attributes").and_then(Value::as_object).ok_or_else(|| missing("Attributes"))?;
    for (name, value) in attributes {
        let known = state.bios.get(name).ok_or_else(|| Refusal::unknown(name))?;
        if std::mem::discriminant(known) != std::mem::discriminant(value) {
            return Err(Refusal::kind(name, &value.to_string()));
        }
    }
    state.pending.extend(attributes.clone());
    Ok(())
}

/// The value of an attribute of a server configuration profile, which has no white space that does not count.
fn attribute<'a>(profile: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = profile.split_once(&format!("<Attribute Name=\"{name}\">"))?;
    Some(rest.split_once("</Attribute>")?.0)
}

fn medium(index: usize, image: &Value, body: &Map<String, Value>) -> Decided {
    let image = match image {
        Value::Null => return Ok(Outcome::Medium(index, None)),
        Value::String(image) => image.clone(),
        other => return Err(Refusal::kind("Image", &other.to_string())),
    };
    if !["http://", "https://"].iter().any(|scheme| image.starts_with(scheme)) {
        return Err(Refusal::parameter_value("InsertMedia", "Image", &image));
    }
    let write_protected = body.get("WriteProtected").and_then(Value::as_bool).unwrap_or(true);
    Ok(Outcome::Medium(index, Some(Medium { image, write_protected })))
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, Refusal> {
    value.as_str().ok_or_else(|| Refusal::kind(name, &value.to_string()))
}

fn missing(property: &str) -> Refusal {
    let message = format!("The property {property} is required and was not there.");
    Refusal::new(StatusCode::BAD_REQUEST, "PropertyMissing", message, &[property])
}

/// Bytes in lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::bmc::power::BootFrom;

    fn change(place: Place, body: Value) -> (Decided, State) {
        of("generic", place, body)
    }

    fn of(profile: &str, place: Place, body: Value) -> (Decided, State) {
        let profile = Profile::known(profile).expect("a profile");
        let account = Account { user: "admin".into(), password: "secret".into() };
        let mut state = State::new(&profile, Mode::Uefi, SignedDuration::ZERO);
        let change = Change { profile: &profile, guard: &account, place, body, on: false, now: Timestamp::UNIX_EPOCH };
        let decided = match change.place {
            Place::Reset | Place::ImportConfiguration => change.post(&mut state),
            _ => change.patch(&mut state),
        };
        (decided, state)
    }

    #[rstest]
    #[case::unknown_property(json!({ "Colour": "red" }), "PropertyUnknown")]
    #[case::unknown_target(json!({ "Boot": { "BootSourceOverrideTarget": "Tape" } }), "PropertyValueNotInList")]
    #[case::unknown_time(json!({ "Boot": { "BootSourceOverrideEnabled": "Twice" } }), "PropertyValueNotInList")]
    #[case::wrong_type(json!({ "Boot": { "BootSourceOverrideTarget": 3 } }), "PropertyValueTypeError")]
    #[case::no_object(json!([]), "MalformedJSON")]
    fn a_wrong_override_is_refused_and_changes_nothing(#[case] body: Value, #[case] key: &str) {
        let (decided, state) = change(Place::System, body);
        assert_eq!(decided.expect_err("refused").key, key);
        assert_eq!(state.boot.enabled, Enabled::Disabled);
    }

    #[test]
    fn an_override_for_once_is_used_up_by_one_boot() {
        let boot = json!({ "Boot": { "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe",
            "BootSourceOverrideMode": "Legacy" } });
        let (decided, mut state) = change(Place::System, boot);
        assert_eq!(decided, Ok(Outcome::Done(Place::System, StatusCode::OK)));
        let next = state.next_boot();
        assert!(next.once && next.from == BootFrom::Network && next.mode == Mode::Legacy);
        state.booted();
        assert_eq!(state.next_boot().from, BootFrom::Normal);
    }

    /// As sushy's extension for Dell writes it.
    fn piece(manager: &str, once: &str, device: &str) -> Value {
        json!({ "ShareParameters": { "Target": "ALL" }, "ImportBuffer": format!(
            "<SystemConfiguration><Component FQDD=\"{manager}\"><Attribute Name=\"ServerBoot.1#BootOnce\">{once}\
             </Attribute><Attribute Name=\"ServerBoot.1#FirstBootDevice\">{device}</Attribute></Component>\
             </SystemConfiguration>")
        })
    }

    #[test]
    fn an_idrac_boots_a_virtual_medium_when_a_piece_of_a_configuration_says_so() {
        let (decided, mut state) =
            of("idrac", Place::ImportConfiguration, piece("iDRAC.Embedded.1", "Enabled", "VCD-DVD"));
        let Ok(Outcome::Done(Place::Task(id), StatusCode::ACCEPTED)) = decided else { panic!("{decided:?}") };
        assert!(id.starts_with("JID_") && state.tasks.contains_key(&id), "{id}");
        let next = state.next_boot();
        assert!(next.once && next.from == BootFrom::Cd, "{next:?}");
        state.booted();
        assert_eq!(state.next_boot().from, BootFrom::Normal);
    }

    #[rstest]
    #[case::nothing(json!({}), "ActionParameterMissing")]
    #[case::of_another_manager(piece("iDRAC.Embedded.2", "Enabled", "VCD-DVD"), "ActionParameterValueFormatError")]
    #[case::no_drive(piece("iDRAC.Embedded.1", "Enabled", "Tape"), "ActionParameterValueFormatError")]
    #[case::sometimes(piece("iDRAC.Embedded.1", "Maybe", "VCD-DVD"), "ActionParameterValueFormatError")]
    fn a_wrong_configuration_is_refused_and_changes_nothing(#[case] body: Value, #[case] key: &str) {
        let (decided, state) = of("idrac", Place::ImportConfiguration, body);
        assert_eq!(decided.expect_err("refused").key, key);
        assert_eq!(state.boot.enabled, Enabled::Disabled);
    }

    #[test]
    fn bios_settings_wait_for_the_next_boot() {
        let body = json!({ "Attributes": { "BootMode": "Legacy" } });
        let (decided, mut state) = change(Place::BiosSettings, body);
        decided.expect("taken");
        assert_eq!(state.bios["BootMode"], "Uefi");
        state.booted();
        assert_eq!(state.bios["BootMode"], "Legacy");
        assert!(state.pending.is_empty());
        let wrong = json!({ "Attributes": { "BootMode": 1 } });
        let (decided, _) = change(Place::BiosSettings, wrong);
        assert_eq!(decided.expect_err("refused").key, "PropertyValueTypeError");
    }

    #[test]
    fn a_reset_that_the_state_forbids_is_a_conflict() {
        let (decided, _) = change(Place::Reset, json!({ "ResetType": "ForceRestart" }));
        assert_eq!(decided.expect_err("refused").status, StatusCode::CONFLICT);
        let (decided, _) = change(Place::Reset, json!({ "ResetType": "On" }));
        assert_eq!(decided, Ok(Outcome::Power(&[Act::On])));
    }
}
