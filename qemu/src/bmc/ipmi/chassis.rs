//! The chassis behind the simulator: what is heard on its pipe, and what is answered.

use std::time::Duration;

use crate::bmc::faults::{self, Faults};
use crate::bmc::power::{Act, Boot, BootFrom, Mode, steps};

/// The command "Set System Boot Options" as the console shows it (IPMI 2.0, 28.12).
const SET_BOOT_OPTIONS: &str = "netfn=0x0 cmd=0x8 ";
/// Its parameter "boot flags".
const BOOT_FLAGS: u8 = 5;
/// Bits of the first byte of the boot flags (IPMI 2.0, table 28-14).
const VALID: u8 = 0x80;
const PERSISTENT: u8 = 0x40;

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The port is open.
    Opened(u16),
    /// The program for the chassis asks.
    Asked(String),
    /// Nothing to do now.
    Nothing,
}

/// What is to be done for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Only answer.
    Say(String),
    /// Do it, then answer.
    Do(&'static [Act], String),
    /// Answer; it is done behind that.
    Later(Act, String),
}

/// Where in a message of the console the next line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Outside,
    /// The line that names the command follows.
    Head,
    /// One more line of addresses follows, then the data.
    Addresses,
    Data,
}

/// All that changes but the machine.
#[derive(Debug)]
pub(super) struct Chassis {
    boot: Boot,
    faults: Faults,
    answers: u64,
    at: At,
    /// The last boot flags that were sent.
    flags: Option<[u8; 2]>,
}

impl Chassis {
    pub fn new(mode: Mode, faults: Faults) -> Self {
        let boot = Boot { mode, ..Boot::default() };
        Self { boot, faults, answers: 0, at: At::Outside, flags: None }
    }

    /// How the machine boots next.
    pub const fn boot(&self) -> Boot {
        self.boot
    }

    /// It has begun to boot: what counts once is used up.
    pub fn booted(&mut self) {
        if self.boot.once {
            self.boot = Boot { mode: self.boot.mode, ..Boot::default() };
        }
    }

    /// How late an answer is.
    pub const fn delay(&self) -> Duration {
        self.faults.delay()
    }

    /// Follows the console.
    pub fn hear(&mut self, line: &str) -> Heard {
        let line = line.trim();
        let line = line.strip_prefix("> ").unwrap_or(line);
        if let Some(request) = line.strip_prefix("chassis: ") {
            return Heard::Asked(request.to_owned());
        }
        if let Some(port) = line.strip_prefix("Opened UDP port ").and_then(|port| port.parse().ok()) {
            return Heard::Opened(port);
        }
        self.at = match self.at {
            At::Head if line.contains(SET_BOOT_OPTIONS) => At::Addresses,
            At::Addresses => At::Data,
            At::Data => {
                self.flags = flags(line).or(self.flags);
                At::Outside
            }
            At::Outside | At::Head if line == "Receive message:" => At::Head,
            At::Outside | At::Head => At::Outside,
        };
        Heard::Nothing
    }

    /// What a request of the simulator comes to for a machine that is on or off.
    pub fn decide(&mut self, request: &str, on: bool) -> Step {
        let number = self.answers;
        self.answers += 1;
        match request {
            "get power" => Step::Say(format!("power:{}", u8::from(self.faults.told(on, number).0))),
            "get boot" => Step::Say(format!("boot:{}", name(self.boot.from))),
            "set power 1" => self.switch("On", on),
            "set power 0" => self.switch("ForceOff", on),
            "set reset 1" => self.switch("ForceRestart", on),
            "set shutdown 1" => self.switch("GracefulShutdown", on),
            request if request.starts_with("set boot ") => {
                let [first, second] = self.flags.unwrap_or_default();
                let from = if first & VALID == 0 { BootFrom::Normal } else { device(second) };
                let once = first & PERSISTENT == 0 && from != BootFrom::Normal;
                self.boot = Boot { from, once, mode: self.boot.mode };
                Step::Say("done".to_owned())
            }
            request if request.starts_with("set identify ") => Step::Say("done".to_owned()),
            _ => Step::Say(super::files::NO.to_owned()),
        }
    }

    fn switch(&self, reset: &str, on: bool) -> Step {
        let done = "done".to_owned();
        match steps(reset, on) {
            None => Step::Say(super::files::NO.to_owned()),
            Some([]) => Step::Say(done),
            Some(_) if self.faults.power == faults::PowerFault::Deaf => Step::Say(done),
            Some([Act::ShutDown]) => Step::Later(Act::ShutDown, done),
            Some(acts) => Step::Do(acts, done),
        }
    }
}

/// The boot flags in the data of "Set System Boot Options", if that is what it sets.
fn flags(line: &str) -> Option<[u8; 2]> {
    let bytes: Vec<u8> = line.split(' ').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    match bytes.as_slice() {
        [parameter, first, second, ..] if parameter & 0x7f == BOOT_FLAGS => Some([*first, *second]),
        _ => None,
    }
}

/// The boot device selector of the second byte (IPMI 2.0, table 28-14).
const fn device(second: u8) -> BootFrom {
    match (second >> 2) & 0xf {
        1 => BootFrom::Network,
        2 => BootFrom::Disk,
        5 => BootFrom::Cd,
        _ => BootFrom::Normal,
    }
}

/// What the simulator calls it: `default` is the disk that is the default.
const fn name(from: BootFrom) -> &'static str {
    match from {
        BootFrom::Normal => "none",
        BootFrom::Network => "pxe",
        BootFrom::Disk => "default",
        BootFrom::Cd => "cdrom",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// What `ipmi_sim` 2.0.37 says when `ipmitool chassis bootdev pxe options=efiboot,persistent` is done.
    const SAID: &str = include_str!("fixtures/bootdev.txt");

    fn chassis(faults: Faults) -> Chassis {
        Chassis::new(Mode::Legacy, faults)
    }

    #[test]
    fn the_real_console_is_followed_to_a_boot_device_that_stays() {
        let mut chassis = chassis(Faults::default());
        let heard: Vec<Heard> = SAID.lines().map(|line| chassis.hear(line)).collect();
        let asked: Vec<&str> = heard
            .iter()
            .filter_map(|heard| match heard {
                Heard::Asked(request) => Some(request.as_str()),
                Heard::Opened(_) | Heard::Nothing => None,
            })
            .collect();
        assert_eq!(asked, ["get boot", "set boot pxe"]);
        assert!(heard.contains(&Heard::Opened(9623)));
        chassis.decide("set boot pxe", false);
        assert_eq!(chassis.boot(), Boot { from: BootFrom::Network, once: false, mode: Mode::Legacy });
        chassis.booted();
        assert_eq!(chassis.boot().from, BootFrom::Network);
        assert_eq!(chassis.decide("get boot", true), Step::Say("boot:pxe".to_owned()));
    }

    #[rstest]
    #[case::once("05 80 04 00 00 00", BootFrom::Network, true)]
    #[case::always("05 c0 08 00 00 00", BootFrom::Disk, false)]
    #[case::locked("85 80 14 00 00 00", BootFrom::Cd, true)]
    #[case::not_valid("05 00 04 00 00 00", BootFrom::Normal, false)]
    #[case::no_override("05 80 00 00 00 00", BootFrom::Normal, false)]
    fn boot_flags_are_a_device_and_for_how_long(#[case] data: &str, #[case] from: BootFrom, #[case] once: bool) {
        let mut chassis = chassis(Faults::default());
        for line in ["Receive message:", " channel=1 netfn=0x0 cmd=0x8 daddr=0x20", " slun=0x0 rq_seq=0x8", data] {
            assert_eq!(chassis.hear(line), Heard::Nothing);
        }
        chassis.decide("set boot x", false);
        assert_eq!((chassis.boot().from, chassis.boot().once), (from, once));
        chassis.booted();
        assert_eq!(chassis.boot().from, if once { BootFrom::Normal } else { from }, "after a boot");
    }

    #[rstest]
    #[case("set power 1", false, Step::Do(&[Act::On], "done".to_owned()))]
    #[case("set power 1", true, Step::Say("done".to_owned()))]
    #[case("set power 0", true, Step::Do(&[Act::Off], "done".to_owned()))]
    #[case("set shutdown 1", true, Step::Later(Act::ShutDown, "done".to_owned()))]
    #[case("set reset 1", true, Step::Do(&[Act::Reset], "done".to_owned()))]
    #[case("set reset 1", false, Step::Say("no".to_owned()))]
    #[case("set colour red", true, Step::Say("no".to_owned()))]
    #[case("get power", true, Step::Say("power:1".to_owned()))]
    fn requests_come_to_acts_and_answers(#[case] request: &str, #[case] on: bool, #[case] wanted: Step) {
        assert_eq!(chassis(Faults::default()).decide(request, on), wanted);
    }

    #[test]
    fn it_lies_about_power_as_its_faults_say() {
        let lying = |power| chassis(Faults { power, ..Faults::default() });
        assert_eq!(lying(faults::PowerFault::Inverted).decide("get power", true), Step::Say("power:0".to_owned()));
        assert_eq!(lying(faults::PowerFault::Deaf).decide("set power 1", false), Step::Say("done".to_owned()));
        let mut wavering = lying(faults::PowerFault::Wavering);
        assert_ne!(wavering.decide("get power", true), wavering.decide("get power", true));
    }
}
