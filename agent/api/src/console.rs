//! Consoles of the kernel, as `console=` names them: `tty0`, `ttyS1,115200n8r`, `hvc0`.
//!
//! Source: Linux, `Documentation/admin-guide/serial-console.rst`. Definitions, recipes of OS images and GRUB's menu read
//! them here and nowhere else, so that what one takes no other refuses.

use std::fmt;
use std::str::FromStr;

/// Speeds of serial ports (`termios(3)`).
const SPEEDS: [u32; 11] = [1200, 2400, 4800, 9600, 19_200, 38_400, 57_600, 115_200, 230_400, 460_800, 921_600];
/// The kinds of consoles, how many there are of each, and whether it is a serial port. Longer names come first.
const KINDS: [(&str, u16, bool); 5] =
    [("ttyAMA", 16, true), ("ttyUSB", 16, true), ("ttyS", 32, true), ("tty", 64, false), ("hvc", 16, false)];
/// Serial ports that firmware and GRUB know (`serial --unit`).
const UNITS: u16 = 4;

/// A console.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Console {
    kind: &'static str,
    number: u16,
    options: Option<Options>,
}

/// How a serial port is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Bits a second.
    pub speed: u32,
    /// `n`, `o` or `e`.
    pub parity: Option<Parity>,
    /// Bits of a character, 7 or 8.
    pub bits: Option<u8>,
    /// Whether the other end says when it is ready (RTS and CTS).
    pub flow: bool,
}

/// The bit that checks a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parity {
    /// None.
    None,
    /// Odd.
    Odd,
    /// Even.
    Even,
}

/// Why a text is no console.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no console\nhint: {hint}")]
pub struct NoConsole {
    /// The text.
    pub text: String,
    /// What to write instead.
    pub hint: String,
}

impl Console {
    /// The device without its options.
    pub fn device(&self) -> String {
        format!("{}{}", self.kind, self.number)
    }

    /// Its options, if it has some.
    pub fn options(&self) -> Option<Options> {
        self.options
    }

    /// The same, with this speed if it is a serial port that says none.
    #[must_use]
    pub fn with_speed(mut self, speed: u32) -> Self {
        if self.is_serial() && self.options.is_none() {
            self.options = Some(Options { speed, parity: None, bits: None, flow: false });
        }
        self
    }

    /// The number by which firmware and GRUB know it, if it is one of the serial ports that they know.
    pub fn unit(&self) -> Option<u16> {
        (self.kind == "ttyS" && self.number < UNITS).then_some(self.number)
    }

    fn is_serial(&self) -> bool {
        KINDS.iter().any(|(kind, _, serial)| *kind == self.kind && *serial)
    }
}

impl fmt::Display for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, self.number)?;
        match &self.options {
            Some(options) => write!(f, ",{options}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.speed)?;
        if let Some(parity) = self.parity {
            f.write_str(match parity {
                Parity::None => "n",
                Parity::Odd => "o",
                Parity::Even => "e",
            })?;
        }
        self.bits.iter().try_for_each(|bits| write!(f, "{bits}"))?;
        f.write_str(if self.flow { "r" } else { "" })
    }
}

impl FromStr for Console {
    type Err = NoConsole;

    fn from_str(text: &str) -> Result<Self, NoConsole> {
        let wrong = |hint: String| NoConsole { text: text.to_owned(), hint };
        let (device, options) = text.split_once(',').map_or((text, None), |(device, options)| (device, Some(options)));
        let found = KINDS.iter().find_map(|(kind, many, serial)| {
            let number = device.strip_prefix(kind)?;
            let good = number == "0" || (!number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit()));
            Some((*kind, good.then(|| number.parse::<u16>().ok()).flatten(), *many, *serial))
        });
        let Some((kind, number, many, serial)) = found else {
            return Err(wrong(device.strip_prefix("/dev/").map_or_else(
                || {
                    "serial ports are `ttyS0` to `ttyS31`, the screen is `tty0`, a hypervisor's console is `hvc0`"
                        .to_owned()
                },
                |bare| format!("write `{bare}`"),
            )));
        };
        let Some(number) = number.filter(|number| *number < many) else {
            return Err(wrong(format!("there are `{kind}0` to `{kind}{}`", many - 1)));
        };
        let options = match options {
            Some(_) if !serial => return Err(wrong(format!("only serial ports have a speed: write `{kind}{number}`"))),
            Some(options) => Some(options.parse().map_err(wrong)?),
            None => None,
        };
        Ok(Self { kind, number, options })
    }
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let speed = text[..digits].parse::<u32>().ok().filter(|speed| SPEEDS.contains(speed));
        let Some(speed) = speed else {
            let all: Vec<String> = SPEEDS.iter().map(ToString::to_string).collect();
            return Err(format!("after the comma comes the speed, one of {}", all.join(", ")));
        };
        let mut rest = &text[digits..];
        let mut next = |letters: &str| {
            let letter = rest.chars().next().filter(|letter| letters.contains(*letter))?;
            rest = &rest[1..];
            Some(letter)
        };
        let parity = next("noe").map(|letter| match letter {
            'o' => Parity::Odd,
            'e' => Parity::Even,
            _ => Parity::None,
        });
        // The kernel reads bits only behind a parity.
        let bits = parity.and_then(|_| next("78")).map(|letter| if letter == '7' { 7 } else { 8 });
        let flow = bits.is_some() && next("r").is_some();
        if rest.is_empty() {
            return Ok(Self { speed, parity, bits, flow });
        }
        Err("after the speed come parity (`n`, `o`, `e`), bits (`7`, `8`) and `r` for RTS/CTS: `115200n8r`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::Console;

    #[rstest]
    #[case("tty0")]
    #[case("tty63")]
    #[case("ttyS0")]
    #[case("ttyS1,115200")]
    #[case("ttyS31,9600e7")]
    #[case("ttyS0,115200n8r")]
    #[case("ttyS0,115200n")]
    #[case("ttyUSB0,57600")]
    #[case("ttyAMA0,115200n8")]
    #[case("hvc0")]
    fn consoles_of_the_kernel_are_read_and_written(#[case] text: &str) {
        assert_eq!(text.parse::<Console>().expect("a console").to_string(), text);
    }

    #[rstest]
    #[case("/dev/ttyS0", "write `ttyS0`")]
    #[case("com1", "serial ports are `ttyS0`")]
    #[case("tty", "`tty0` to `tty63`")]
    #[case("tty64", "`tty0` to `tty63`")]
    #[case("ttyS00", "`ttyS0` to `ttyS31`")]
    #[case("ttyS32", "`ttyS0` to `ttyS31`")]
    #[case("tty0,115200", "only serial ports have a speed")]
    #[case("ttyS0,fast", "after the comma comes the speed")]
    #[case("ttyS0,115201", "one of 1200")]
    #[case("ttyS0,115200x", "`115200n8r`")]
    #[case("ttyS0,1152008", "after the comma comes the speed")]
    #[case("ttyS0,115200nr", "`115200n8r`")]
    #[case("ttyS0,", "after the comma comes the speed")]
    #[case("", "serial ports are")]
    fn what_is_no_console_is_told_with_what_to_write(#[case] text: &str, #[case] hint: &str) {
        let error = text.parse::<Console>().expect_err("no console");
        assert!(error.hint.contains(hint), "{error}");
    }
}
