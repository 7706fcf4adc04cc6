//! Commands that read, those of sessions and serial lines, and their answers.

use super::wire::{Message, PAYLOAD_SOL, WireError};

/// 5.1: network functions of requests.
const CHASSIS: u8 = 0x00;
const APP: u8 = 0x06;
const STORAGE: u8 = 0x0a;
/// 22.13: this channel, and IPMI 2.0's additions.
const THIS_CHANNEL: u8 = 0x0e;
const EXTENDED: u8 = 0x80;
/// 28.13, table 28-14: boot flags.
const BOOT_FLAGS: u8 = 5;
/// 31.10 and 37: times up to this count from when the BMC started.
const SINCE_START: u32 = 0x2000_0000;
const NO_TIME: u32 = 0xffff_ffff;

/// What a session may do (22.18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privilege {
    /// Read.
    User,
    /// Switch.
    Operator,
    /// Configure: what Ironic asks for.
    #[default]
    Administrator,
}

impl Privilege {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::User => 2,
            Self::Operator => 3,
            Self::Administrator => 4,
        }
    }

    /// By the name that `?privilegelevel=` has for it.
    pub fn named(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "USER" => Some(Self::User),
            "OPERATOR" => Some(Self::Operator),
            "ADMINISTRATOR" => Some(Self::Administrator),
            _ => None,
        }
    }
}

/// A request: network function, command, data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub function: u8,
    pub code: u8,
    pub data: Vec<u8>,
}

impl Command {
    fn new(function: u8, code: u8, data: &[u8]) -> Self {
        Self { function, code, data: data.to_vec() }
    }

    /// Get Channel Authentication Capabilities (22.13).
    pub fn capabilities(privilege: Privilege) -> Self {
        Self::new(APP, 0x38, &[THIS_CHANNEL | EXTENDED, privilege.code()])
    }

    /// Set Session Privilege Level (22.18), of our own session.
    pub fn privilege(privilege: Privilege) -> Self {
        Self::new(APP, 0x3b, &[privilege.code()])
    }

    /// Close Session (22.19), our own.
    pub fn close(session: u32) -> Self {
        Self::new(APP, 0x3c, &session.to_le_bytes())
    }

    /// Get Device ID (20.1).
    pub fn device_id() -> Self {
        Self::new(APP, 0x01, &[])
    }

    /// Get Chassis Status (28.2).
    pub fn chassis_status() -> Self {
        Self::new(CHASSIS, 0x01, &[])
    }

    /// Get System Boot Options (28.13), the boot flags.
    pub fn boot_options() -> Self {
        Self::new(CHASSIS, 0x09, &[BOOT_FLAGS, 0, 0])
    }

    /// Get SEL Time (31.10).
    pub fn sel_time() -> Self {
        Self::new(STORAGE, 0x48, &[])
    }

    /// Activate Payload (24.1): the serial line, the first of its kind, encrypted and authenticated; alerts of the server's own go
    /// on (15.4).
    pub fn activate_sol() -> Self {
        Self::new(APP, 0x48, &[PAYLOAD_SOL, 1, 0xc8, 0, 0, 0])
    }

    /// Deactivate Payload (24.2), of that line.
    pub fn deactivate_sol() -> Self {
        Self::new(APP, 0x49, &[PAYLOAD_SOL, 1, 0, 0, 0, 0])
    }

    /// The message with this number.
    pub fn message(&self, sequence: u8) -> Message {
        Message { function: self.function, sequence, command: self.code, data: self.data.clone() }
    }

    /// The data of the answer, and its completion code (5.2).
    pub fn answer<'a>(&self, sequence: u8, message: &'a Message) -> Result<(u8, &'a [u8]), WireError> {
        let ours = message.function == self.function | 1
            && message.command == self.code
            && message.sequence == sequence & 0x3f;
        let (code, data) = message.data.split_first().filter(|_| ours).ok_or(WireError::Unexpected)?;
        Ok((*code, data))
    }
}

/// Whether IPMI 2.0 is spoken: byte 5 of the answer, bit 1 (22.13).
pub(super) fn speaks_2(data: &[u8]) -> Result<bool, WireError> {
    let [_, support, _, extended, ..] = data else { return Err(WireError::Short) };
    Ok(support & 0x80 != 0 && extended & 0x02 != 0)
}

/// Get Device ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceId {
    /// Firmware, such as `9.08`.
    pub firmware: String,
    /// IPMI, such as `2.0`.
    pub ipmi: String,
    /// IANA enterprise number of the manufacturer.
    pub manufacturer: u32,
    /// The manufacturer's number of the product.
    pub product: u16,
}

impl DeviceId {
    pub(super) fn decode(data: &[u8]) -> Result<Self, WireError> {
        let [_, _, major, minor, ipmi, _, low, middle, high, product @ ..] = data else {
            return Err(WireError::Short);
        };
        Ok(Self {
            firmware: format!("{}.{minor:02x}", major & 0x7f),
            // BCD, the major version in the low digit.
            ipmi: format!("{}.{}", ipmi & 0x0f, ipmi >> 4),
            manufacturer: u32::from_le_bytes([*low, *middle, *high & 0x0f, 0]),
            product: u16::from_le_bytes(*product.first_chunk().ok_or(WireError::Short)?),
        })
    }

    /// The manufacturer's name, of those that make BMCs (IANA "Private Enterprise Numbers").
    pub fn vendor(&self) -> Option<&'static str> {
        match self.manufacturer {
            2 => Some("IBM"),
            11 | 47196 => Some("HPE"),
            343 => Some("Intel"),
            674 => Some("Dell"),
            5771 => Some("Cisco"),
            7154 => Some("IPMI forum"),
            10368 => Some("Fujitsu"),
            10876 | 47488 => Some("Supermicro"),
            15370 => Some("GIGABYTE"),
            19046 => Some("Lenovo"),
            2011 => Some("Huawei"),
            _ => None,
        }
    }
}

/// Get Chassis Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChassisStatus {
    /// The system is on.
    pub on: bool,
    /// Power fault, or overload.
    pub fault: bool,
}

impl ChassisStatus {
    pub(super) fn decode(data: &[u8]) -> Result<Self, WireError> {
        let power = data.first().ok_or(WireError::Short)?;
        Ok(Self { on: power & 0x01 != 0, fault: power & 0x0a != 0 })
    }
}

/// Boot flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootOptions {
    /// They count.
    pub valid: bool,
    /// For all boots, not for the next one only.
    pub persistent: bool,
    /// For UEFI boots.
    pub uefi: bool,
    /// Boot device selector; 0: no override.
    pub device: u8,
}

impl BootOptions {
    pub(super) fn decode(data: &[u8]) -> Result<Self, WireError> {
        let [_, _, flags, device, ..] = data else { return Err(WireError::Short) };
        Ok(Self {
            valid: flags & 0x80 != 0,
            persistent: flags & 0x40 != 0,
            uefi: flags & 0x20 != 0,
            device: (device >> 2) & 0x0f,
        })
    }

    /// The device's name.
    pub const fn device_name(self) -> &'static str {
        match self.device {
            0 => "none",
            1 => "network",
            2 => "disk",
            3 => "disk (safe mode)",
            4 => "diagnostics",
            5 => "CD",
            6 => "setup",
            7 => "remote floppy",
            8 => "remote CD",
            9 => "remote media",
            11 => "remote disk",
            15 => "floppy",
            _ => "a device of the vendor's",
        }
    }
}

/// The time of the event log, seconds of the Unix epoch. `None`: the clock was never set.
pub(super) fn time(data: &[u8]) -> Result<Option<u32>, WireError> {
    let seconds = u32::from_le_bytes(*data.first_chunk().ok_or(WireError::Short)?);
    Ok(Some(seconds).filter(|seconds| *seconds > SINCE_START && *seconds != NO_TIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_the_specification_lays_them_out() {
        let id = [0x20, 0x01, 0x89, 0x08, 0x02, 0xbf, 0xa2, 0x02, 0x00, 0x00, 0x01, 0, 0, 0, 0];
        let id = DeviceId::decode(&id).expect("an id");
        assert_eq!((id.firmware.as_str(), id.ipmi.as_str(), id.vendor()), ("9.08", "2.0", Some("Dell")));
        assert_eq!(ChassisStatus::decode(&[0x61, 0, 0]), Ok(ChassisStatus { on: true, fault: false }));
        let boot = BootOptions::decode(&[1, 5, 0xa0, 0x04, 0, 0, 0]).expect("flags");
        assert!(boot.valid && boot.uefi && !boot.persistent);
        assert_eq!(boot.device_name(), "network");
        assert_eq!(time(&[0, 0, 0, 0x10]), Ok(None), "since the BMC started");
        assert_eq!(time(&[0x80, 0x43, 0x6d, 0x38]), Ok(Some(946_684_800)));
        assert_eq!(time(&[0]), Err(WireError::Short));
    }
}
