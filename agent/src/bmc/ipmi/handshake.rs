//! Opening a session: Open Session and RAKP 1 to 4 (13.17 to 13.23). Pure; random numbers are handed in.

use super::command::Privilege;
use super::wire::{
    Hash, Keys, PAYLOAD_OPEN_REQUEST, PAYLOAD_OPEN_RESPONSE, PAYLOAD_RAKP1, PAYLOAD_RAKP2, PAYLOAD_RAKP3,
    PAYLOAD_RAKP4, WireError, decode_open, encode_open,
};

/// 13.24: RMCP+ status codes that tell something to a person.
const STATUS_OK: u8 = 0x00;
const NO_RESOURCES: u8 = 0x01;
const BAD_AUTHENTICATION: u8 = 0x04;
const BAD_INTEGRITY: u8 = 0x05;
const BAD_ROLE: u8 = 0x09;
const UNAUTHORIZED_ROLE: u8 = 0x0a;
const UNAUTHORIZED_NAME: u8 = 0x0d;
const BAD_CODE: u8 = 0x0f;
const BAD_CONFIDENTIALITY: u8 = 0x10;
const NO_SUITE: u8 = 0x11;

/// 13.20: the name alone finds the account, whatever the privilege.
const NAME_ONLY: u8 = 0x10;

/// Longest name, in bytes (13.20).
pub(super) const NAME_MAX: usize = 16;
/// Longest password of IPMI 2.0 (22.30).
pub(super) const PASSWORD_MAX: usize = 20;

/// Why no session opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The BMC does not take the algorithms.
    #[error("the BMC takes none of cipher suites 17 and 3")]
    Suite,
    /// There is no such user.
    #[error("the BMC does not know the user")]
    User,
    /// The password is another one.
    #[error("the password is wrong")]
    Password,
    /// The user may not do that much.
    #[error("the user does not have the wanted privilege")]
    Privilege,
    /// All sessions are taken.
    #[error("the BMC has no session left")]
    Full,
    /// Something else.
    #[error("the BMC refuses the session with status 0x{0:02x}")]
    Status(u8),
    /// The bytes are wrong.
    #[error(transparent)]
    Wire(#[from] WireError),
}

fn status(code: u8) -> Result<(), Refused> {
    match code {
        STATUS_OK => Ok(()),
        NO_RESOURCES => Err(Refused::Full),
        BAD_AUTHENTICATION | BAD_INTEGRITY | BAD_CONFIDENTIALITY | NO_SUITE => Err(Refused::Suite),
        BAD_ROLE | UNAUTHORIZED_ROLE => Err(Refused::Privilege),
        UNAUTHORIZED_NAME => Err(Refused::User),
        BAD_CODE => Err(Refused::Password),
        other => Err(Refused::Status(other)),
    }
}

/// What the console brings.
#[derive(Clone, Debug)]
pub(super) struct Console<'a> {
    pub hash: Hash,
    pub user: &'a [u8],
    pub password: &'a [u8],
    pub privilege: Privilege,
    /// Our session's id, not 0.
    pub id: u32,
    pub random: [u8; 16],
}

/// The BMC has taken the algorithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The BMC's session id.
    pub bmc: u32,
}

/// The BMC has shown that it knows the password.
#[derive(Clone)]
pub(super) struct Proved {
    pub bmc: u32,
    random: [u8; 16],
    guid: [u8; 16],
    integrity: Vec<u8>,
}

impl Console<'_> {
    fn role(&self) -> u8 {
        NAME_ONLY | self.privilege.code()
    }

    fn length(&self) -> u8 {
        u8::try_from(self.user.len()).unwrap_or(u8::MAX)
    }

    /// Open Session Request (13.17).
    pub fn open(&self) -> Vec<u8> {
        let (authentication, integrity) = self.hash.algorithms();
        let mut payload = vec![0, self.privilege.code(), 0, 0];
        payload.extend(self.id.to_le_bytes());
        for (kind, algorithm) in [(0, authentication), (1, integrity), (2, 0x01)] {
            payload.extend([kind, 0, 0, 8, algorithm, 0, 0, 0]);
        }
        encode_open(PAYLOAD_OPEN_REQUEST, &payload)
    }

    /// Open Session Response (13.18).
    pub fn opened(&self, packet: &[u8]) -> Result<Opened, Refused> {
        let payload = decode_open(packet, PAYLOAD_OPEN_RESPONSE)?;
        let rest = self.ours(payload, 2)?;
        let bmc = rest.first_chunk().ok_or(WireError::Short)?;
        Ok(Opened { bmc: u32::from_le_bytes(*bmc) })
    }

    /// What lies behind tag, status, `skip` bytes and our session's id, if the status says that all is well.
    fn ours<'a>(&self, payload: &'a [u8], skip: usize) -> Result<&'a [u8], Refused> {
        let code = *payload.get(1).ok_or(WireError::Short)?;
        status(code)?;
        let rest = payload.get(2 + skip..).ok_or(WireError::Short)?;
        let (id, rest) = rest.split_first_chunk::<4>().ok_or(WireError::Short)?;
        if u32::from_le_bytes(*id) == self.id { Ok(rest) } else { Err(WireError::Unexpected.into()) }
    }

    /// RAKP Message 1 (13.20).
    pub fn rakp1(&self, opened: &Opened) -> Vec<u8> {
        let mut payload = vec![0; 4];
        payload.extend(opened.bmc.to_le_bytes());
        payload.extend(self.random);
        payload.extend([self.role(), 0, 0, self.length()]);
        payload.extend(self.user);
        encode_open(PAYLOAD_RAKP1, &payload)
    }

    /// RAKP Message 2 (13.21): a BMC that knows another password makes another code.
    pub fn rakp2(&self, opened: &Opened, packet: &[u8]) -> Result<Proved, Refused> {
        let payload = decode_open(packet, PAYLOAD_RAKP2)?;
        let rest = self.ours(payload, 2)?;
        let (random, rest) = rest.split_first_chunk::<16>().ok_or(WireError::Short)?;
        let (guid, code) = rest.split_first_chunk::<16>().ok_or(WireError::Short)?;
        let (role, length) = ([self.role()], [self.length()]);
        let (ours, theirs) = (self.id.to_le_bytes(), opened.bmc.to_le_bytes());
        let right =
            self.hash.mac(self.password, &[&ours, &theirs, &self.random, random, guid, &role, &length, self.user]);
        if code.len() < right.len() {
            return Err(WireError::Short.into());
        }
        if code[..right.len()] != right[..] {
            return Err(Refused::Password);
        }
        // 13.31: the BMC's own key is the password where none is set.
        let integrity = self.hash.mac(self.password, &[&self.random, random, &role, &length, self.user]);
        Ok(Proved { bmc: opened.bmc, random: *random, guid: *guid, integrity })
    }

    /// RAKP Message 3 (13.22): that we know it, too.
    pub fn rakp3(&self, proved: &Proved) -> Vec<u8> {
        let (role, length) = ([self.role()], [self.length()]);
        let ours = self.id.to_le_bytes();
        let code = self.hash.mac(self.password, &[&proved.random, &ours, &role, &length, self.user]);
        let mut payload = vec![0; 4];
        payload.extend(proved.bmc.to_le_bytes());
        payload.extend(&code[..self.hash.lengths().0]);
        encode_open(PAYLOAD_RAKP3, &payload)
    }

    /// RAKP Message 4 (13.23): the session is open.
    pub fn rakp4(&self, proved: &Proved, packet: &[u8]) -> Result<Keys, Refused> {
        let payload = decode_open(packet, PAYLOAD_RAKP4)?;
        let code = self.ours(payload, 2)?;
        let right = self.hash.mac(&proved.integrity, &[&self.random, &proved.bmc.to_le_bytes(), &proved.guid]);
        let right = &right[..self.hash.lengths().1];
        if code.get(..right.len()) != Some(right) {
            return Err(WireError::Authentication.into());
        }
        Ok(Keys::new(self.hash, &proved.integrity))
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
