//! GRUB's menu: the text of `grub.cfg`, a pure function of [`Menu`]. The builder writes it for an image, and the box for a
//! release that came to it later.
//!
//! The same text works from an ESP, from a CD and from a CD image on a stick, under BIOS and UEFI: each entry searches
//! its own kernel, the device GRUB came from first. A serial port that is not there is not used, so nothing waits for it;
//! nothing is printed but one line while the timeout runs, so a slow or dead one costs little.
//! Under UEFI firmware mirrors its console to the serial port where it is told to; GRUB does not write there itself,
//! or every character would appear twice. What cannot be started is said on both, and stays there.
//!
//! BIOS machines start the kernel by its 16-bit entry (`linux16`): with the 32-bit one GRUB first copies the kernel's
//! whole memory image (58 MiB) byte by byte, which takes 2 s under emulation. `edd=off` skips the setup code's look at
//! every disk, which hangs on some BIOSes and which nothing here needs.

use crate::console::{Console, NoConsole, Options, Parity};

/// What the menu offers, and on which consoles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Menu {
    /// The release, started by itself.
    pub current: MenuEntry,
    /// The release before it, if there is one.
    pub previous: Option<MenuEntry>,
    /// Kernel consoles, such as `tty0` and `ttyS0`; the last one becomes `/dev/console`.
    pub consoles: Vec<String>,
}

/// One release that the menu can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MenuEntry {
    /// Hex sha256 of the release's `release.json`.
    pub release_id: String,
    /// What the menu shows, such as `edge 1.4.0`.
    pub title: String,
    /// Kernel parameters, without consoles and without `foothold.release`.
    pub parameters: Vec<String>,
}

impl MenuEntry {
    /// The first 16 characters of the release id: the name of its folder under `foothold/boot/`.
    pub fn id16(&self) -> &str {
        self.release_id.get(..16).unwrap_or(&self.release_id)
    }

    /// Path of the kernel on the boot medium, relative.
    pub fn kernel_path(&self) -> String {
        format!("foothold/boot/{}/vmlinuz", self.id16())
    }

    /// Path of the initrd on the boot medium, relative.
    pub fn initrd_path(&self) -> String {
        format!("foothold/boot/{}/initrd", self.id16())
    }
}

/// Seconds until the release starts by itself.
const TIMEOUT_SECS: u32 = 1;
/// Speed of serial consoles.
const BAUD: u32 = 115_200;

/// What the kernel takes (`COMMAND_LINE_SIZE` less the end), less what GRUB puts in front: the kernel's path.
const MAX_PARAMETERS: usize = 2047 - 128;

/// Why a menu cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MenuError {
    /// The text would end its quotes in `grub.cfg`, or is not text.
    #[error("{what} `{text}` has a character that GRUB cannot be given (a quote or a control character)")]
    Text {
        /// What the text is.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// The kernel would not see the end of its parameters.
    #[error("the kernel parameters of `{title}` have {found} bytes, {most} are possible")]
    TooLong {
        /// The entry.
        title: String,
        /// Bytes it has.
        found: usize,
        /// Bytes that the kernel reads.
        most: usize,
    },
    /// A console is none of the kernel's.
    #[error(transparent)]
    Console(#[from] NoConsole),
}

/// A mode of the same release that the menu offers.
struct MenuMode {
    suffix: &'static str,
    parameters: &'static [&'static str],
}

const NORMAL: MenuMode = MenuMode { suffix: "", parameters: &[] };
const CHECK: MenuMode = MenuMode { suffix: ": check the medium", parameters: &["foothold.mode=check"] };
const SAFE: MenuMode = MenuMode { suffix: ": safe mode (no cluster)", parameters: &["foothold.mode=safe"] };

/// Starts a release (`$1`: its folder) with the kernel parameters that follow; returns only when it cannot.
const START: &str = r#"function start {
  set id="$1"
  shift
  if search --no-floppy --file --set=root --hint=$root /foothold/boot/$id/vmlinuz; then
    if [ "$grub_platform" = pc ]; then
      if linux16 /foothold/boot/$id/vmlinuz "$@" edd=off; then
        if initrd16 /foothold/boot/$id/initrd; then boot; fi
      fi
    else
      if linux /foothold/boot/$id/vmlinuz "$@"; then
        if initrd /foothold/boot/$id/initrd; then boot; fi
      fi
    fi
  fi
  explain
  if [ "$grub_platform" = efi ]; then
    if serial SERIAL; then
      terminal_output serial
      explain
      terminal_output console
    fi
  fi
  sleep --interruptible 86400
  reboot
}
function explain {
  echo
  echo "Foothold cannot start: kernel or initrd of release $id cannot be read or is damaged."
  echo "Looked for: /foothold/boot/$id/vmlinuz and initrd, on every disk."
  echo "What to do: write the image to the medium again, or use another medium: byte by byte,"
  echo "with dd, or with Rufus in DD mode. Ventoy wants the ISO itself as a file."
  echo "Esc restarts the machine; Esc during the countdown shows the other entries."
}
"#;

/// Where menus of others look for ours, in an image that they have looped (`loopback loop $iso_path`).
pub const LOOPBACK_CFG: &str = "boot/grub/loopback.cfg";
/// What they find there: the menu of the image, from whatever device it is.
pub const LOOPBACK: &str = "configfile /EFI/debian/grub.cfg\n";

const SETTINGS: &str = "set default=0\nset timeout=TIMEOUT_SECS\nset timeout_style=countdown\n";

impl Menu {
    /// The text of `grub.cfg`.
    pub fn grub_cfg(&self) -> Result<String, MenuError> {
        let consoles = self.consoles.iter().map(|name| name.parse()).collect::<Result<Vec<Console>, _>>()?;
        let consoles: Vec<Console> = consoles.into_iter().map(|console| console.with_speed(BAUD)).collect();
        let serial = consoles.iter().find_map(|console| Some(serial(console.unit()?, console.options())));
        let mut text = START.replace("SERIAL", serial.as_deref().unwrap_or(&serial_default()));
        text.push_str(&serial.as_deref().map_or_else(String::new, terminals));
        let consoles: Vec<String> = consoles.iter().map(|console| format!("console={console}")).collect();
        text.push_str(&SETTINGS.replace("TIMEOUT_SECS", &TIMEOUT_SECS.to_string()));
        text.push_str(&menu_entry(&self.current, &NORMAL, &consoles)?);
        if let Some(previous) = &self.previous {
            text.push_str(&menu_entry(previous, &NORMAL, &consoles)?);
        }
        text.push_str(&menu_entry(&self.current, &CHECK, &consoles)?);
        text.push_str(&menu_entry(&self.current, &SAFE, &consoles)?);
        Ok(text)
    }
}

/// Arguments of GRUB's `serial` for a port (GRUB manual, "serial").
fn serial(unit: u16, options: Option<Options>) -> String {
    let mut text = format!("--unit={unit} --speed={}", options.map_or(BAUD, |options| options.speed));
    match options.and_then(|options| options.parity) {
        Some(Parity::Odd) => text.push_str(" --parity=odd"),
        Some(Parity::Even) => text.push_str(" --parity=even"),
        Some(Parity::None) | None => {}
    }
    let word = options.and_then(|options| options.bits).map(|bits| format!(" --word={bits}"));
    text.extend(word);
    text
}

/// The first port, where no console is one that GRUB knows.
fn serial_default() -> String {
    serial(0, None)
}

/// GRUB's own terminals: the screen always, the first serial console too under BIOS where the port exists.
fn terminals(serial: &str) -> String {
    format!(
        "if [ \"$grub_platform\" = pc ]; then\n  \
           if serial {serial}; then\n    \
             terminal_input --append serial\n    \
             terminal_output --append serial\n  \
           fi\n\
         fi\n"
    )
}

fn menu_entry(entry: &MenuEntry, mode: &MenuMode, consoles: &[String]) -> Result<String, MenuError> {
    let title = quote("the title", &format!("{}{}", entry.title, mode.suffix))?;
    let release = format!("foothold.release={}", entry.release_id);
    let own = mode.parameters.iter().map(|parameter| (*parameter).to_owned());
    let parameters = [release].into_iter().chain(own).chain(entry.parameters.clone()).chain(consoles.to_vec());
    let parameters: Vec<String> =
        parameters.map(|parameter| quote("the kernel parameter", &parameter)).collect::<Result<_, _>>()?;
    let parameters = parameters.join(" ");
    if parameters.len() > MAX_PARAMETERS {
        return Err(MenuError::TooLong { title: entry.title.clone(), found: parameters.len(), most: MAX_PARAMETERS });
    }
    Ok(format!("menuentry {title} {{\n  start {} {parameters}\n}}\n", entry.id16()))
}

/// A word of GRUB's language: within single quotes nothing has a meaning, so only a quote is impossible.
fn quote(what: &'static str, text: &str) -> Result<String, MenuError> {
    if text.contains('\'') || text.chars().any(char::is_control) {
        return Err(MenuError::Text { what, text: text.to_owned() });
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-=,/:+@%".contains(c);
    Ok(if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{text}'") })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Menu, MenuEntry, MenuError};

    fn entry(id: &str, title: &str, parameters: &[&str]) -> MenuEntry {
        MenuEntry {
            release_id: id.repeat(32),
            title: title.to_owned(),
            parameters: parameters.iter().map(|&parameter| parameter.to_owned()).collect(),
        }
    }

    fn menu(parameters: &[&str], consoles: &[&str]) -> Menu {
        Menu {
            current: entry("ab", "edge 1.4.0", parameters),
            previous: None,
            consoles: consoles.iter().map(|&console| console.to_owned()).collect(),
        }
    }

    /// The lines behind the functions, which are the same always.
    fn tail(text: &str) -> &str {
        &text[text.find("set default").expect("settings")..]
    }

    #[test]
    fn the_menu_offers_the_release_the_previous_one_a_check_and_safe_mode() {
        let mut menu = menu(&["quiet", "foothold.data=ram"], &["tty0", "ttyS1"]);
        menu.previous = Some(entry("cd", "edge 1.3.0", &[]));
        insta::assert_snapshot!(tail(&menu.grub_cfg().expect("a menu")), @r"
        set default=0
        set timeout=1
        set timeout_style=countdown
        menuentry 'edge 1.4.0' {
          start abababababababab foothold.release=abababababababababababababababababababababababababababababababab quiet foothold.data=ram console=tty0 console=ttyS1,115200
        }
        menuentry 'edge 1.3.0' {
          start cdcdcdcdcdcdcdcd foothold.release=cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd console=tty0 console=ttyS1,115200
        }
        menuentry 'edge 1.4.0: check the medium' {
          start abababababababab foothold.release=abababababababababababababababababababababababababababababababab foothold.mode=check quiet foothold.data=ram console=tty0 console=ttyS1,115200
        }
        menuentry 'edge 1.4.0: safe mode (no cluster)' {
          start abababababababab foothold.release=abababababababababababababababababababababababababababababababab foothold.mode=safe quiet foothold.data=ram console=tty0 console=ttyS1,115200
        }
        ");
    }

    #[test]
    fn a_box_without_serial_console_does_not_touch_the_port_in_its_menu() {
        let text = menu(&[], &["tty0"]).grub_cfg().expect("a menu");
        assert!(!text.contains("terminal_input"), "{text}");
    }

    #[rstest]
    #[case::quote("a='b'")]
    #[case::newline("a=b\nreboot")]
    fn a_parameter_that_would_end_its_quotes_is_refused(#[case] parameter: &str) {
        let error = menu(&[parameter], &["tty0"]).grub_cfg().expect_err("impossible");
        assert!(matches!(error, MenuError::Text { .. }), "{error}");
    }

    #[test]
    fn every_console_of_the_kernel_has_a_menu_and_what_is_none_is_refused() {
        for (consoles, words) in [
            (["tty0", "ttyS1,115200"], ["console=tty0 console=ttyS1,115200\n", "serial --unit=1 --speed=115200;"]),
            (
                ["tty0", "ttyS0,9600e7r"],
                ["console=ttyS0,9600e7r\n", "serial --unit=0 --speed=9600 --parity=even --word=7;"],
            ),
            (["ttyS0", "hvc0"], ["console=ttyS0,115200 console=hvc0\n", "serial --unit=0 --speed=115200;"]),
            (["ttyS5", "ttyS2,38400n8"], ["console=ttyS5,115200 ", "serial --unit=2 --speed=38400 --word=8;"]),
        ] {
            let text = menu(&[], &consoles).grub_cfg().expect("a menu");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        let text = menu(&[], &["hvc0"]).grub_cfg().expect("a menu");
        assert!(!text.contains("terminal_input"), "{text}");
        let error = menu(&[], &["ttyS0,fast"]).grub_cfg().expect_err("no console");
        assert!(matches!(error, MenuError::Console(_)), "{error}");
    }

    #[test]
    fn more_parameters_than_the_kernel_takes_are_refused() {
        let error = menu(&["x".repeat(2000).as_str()], &["tty0"]).grub_cfg().expect_err("too long");
        assert!(error.to_string().contains("1919 are possible"), "{error}");
    }
}
