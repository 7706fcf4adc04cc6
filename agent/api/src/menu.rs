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
    #[error("the kernel parameters of `{title}` have {found} bytes, {MAX_PARAMETERS} are possible")]
    TooLong {
        /// The entry.
        title: String,
        /// Bytes it has.
        found: usize,
    },
    /// A console is neither `tty0` nor a `ttyS` port.
    #[error("the console `{0}` is not known\nhint: use `tty0` to `tty63` or `ttyS0` to `ttyS3`")]
    Console(String),
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
    if serial --unit=SERIAL_UNIT --speed=BAUD; then
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
  echo "What to do: write the image to the medium again, or use another medium."
  echo "Esc restarts the machine; Esc during the countdown shows the other entries."
}
"#;

const SETTINGS: &str = "set default=0\nset timeout=TIMEOUT_SECS\nset timeout_style=countdown\n";

impl Menu {
    /// The text of `grub.cfg`.
    pub fn grub_cfg(&self) -> Result<String, MenuError> {
        let consoles = consoles(&self.consoles)?;
        let unit = self.consoles.iter().find_map(|name| name.strip_prefix("ttyS"));
        let mut text = START.replace("SERIAL_UNIT", unit.unwrap_or("0")).replace("BAUD", &BAUD.to_string());
        text.push_str(&unit.map_or_else(String::new, terminals));
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

/// `console=` parameters in the given order.
fn consoles(names: &[String]) -> Result<Vec<String>, MenuError> {
    let parameter = |name: &String| {
        let number = |prefix| name.strip_prefix(prefix).and_then(|rest: &str| rest.parse::<u8>().ok());
        match (number("ttyS"), number("tty")) {
            (Some(0..=3), _) => Ok(format!("console={name},{BAUD}")),
            (None, Some(0..=63)) => Ok(format!("console={name}")),
            _ => Err(MenuError::Console(name.clone())),
        }
    };
    names.iter().map(parameter).collect()
}

/// GRUB's own terminals: the screen always, the first serial console too under BIOS where the port exists.
fn terminals(unit: &str) -> String {
    format!(
        "if [ \"$grub_platform\" = pc ]; then\n  \
           if serial --unit={unit} --speed={BAUD}; then\n    \
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
        return Err(MenuError::TooLong { title: entry.title.clone(), found: parameters.len() });
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

    #[rstest]
    #[case::unknown("hvc0")]
    #[case::beyond_the_four_ports("ttyS4")]
    #[case::no_number("tty")]
    #[case::with_options("ttyS0,9600")]
    fn a_console_that_is_not_known_is_refused(#[case] console: &str) {
        let error = menu(&[], &[console]).grub_cfg().expect_err("unknown");
        assert_eq!(error, MenuError::Console(console.to_owned()));
    }

    #[test]
    fn more_parameters_than_the_kernel_takes_are_refused() {
        let error = menu(&["x".repeat(2000).as_str()], &["tty0"]).grub_cfg().expect_err("too long");
        assert!(error.to_string().contains("1919 are possible"), "{error}");
    }
}
