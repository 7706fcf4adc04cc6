//! The text of `grub.cfg`, a pure function of [`BootEntries`].
//!
//! The same text works from an ESP, from a CD and from a CD image on a stick, under BIOS and UEFI: each entry searches
//! its own kernel, the device GRUB came from first. A serial port that is not there is not used, so nothing waits for it;
//! nothing is printed but one line while the timeout runs, so a slow or dead one costs little.
//! Under UEFI firmware mirrors its console to the serial port where it is told to; GRUB does not write there itself,
//! or every character would appear twice.

use std::fmt::Write as _;

use super::{BootEntries, BootEntry};

/// Seconds until the release starts by itself.
const TIMEOUT_SECS: u32 = 1;
/// Speed of serial consoles.
const BAUD: u32 = 115_200;

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
    /// A console is neither `tty0` nor a `ttyS` port.
    #[error("the console `{0}` is not known\nhint: use `tty0` to `tty63` or `ttyS0` to `ttyS3`")]
    Console(String),
}

/// A mode of the same release that the menu offers.
struct Mode {
    suffix: &'static str,
    parameters: &'static [&'static str],
}

const NORMAL: Mode = Mode { suffix: "", parameters: &[] };
const CHECK: Mode = Mode { suffix: ": check the medium", parameters: &["foothold.mode=check"] };
const SAFE: Mode = Mode { suffix: ": safe mode (no cluster)", parameters: &["foothold.mode=safe"] };

/// The text of `grub.cfg`.
pub fn grub_cfg(entries: &BootEntries) -> Result<String, MenuError> {
    let consoles = consoles(&entries.consoles)?;
    let mut text = String::new();
    text.push_str(&terminals(&entries.consoles));
    let _ = write!(text, "set default=0\nset timeout={TIMEOUT_SECS}\nset timeout_style=countdown\n");
    text.push_str(&menu_entry(&entries.current, &NORMAL, &consoles)?);
    if let Some(previous) = &entries.previous {
        text.push_str(&menu_entry(previous, &NORMAL, &consoles)?);
    }
    text.push_str(&menu_entry(&entries.current, &CHECK, &consoles)?);
    text.push_str(&menu_entry(&entries.current, &SAFE, &consoles)?);
    Ok(text)
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
fn terminals(consoles: &[String]) -> String {
    let Some(unit) = consoles.iter().find_map(|name| name.strip_prefix("ttyS")) else {
        return String::new();
    };
    format!(
        "if [ \"$grub_platform\" = pc ]; then\n  \
           if serial --unit={unit} --speed={BAUD}; then\n    \
             terminal_input --append serial\n    \
             terminal_output --append serial\n  \
           fi\n\
         fi\n"
    )
}

fn menu_entry(entry: &BootEntry, mode: &Mode, consoles: &[String]) -> Result<String, MenuError> {
    let title = quote("the title", &format!("{}{}", entry.title, mode.suffix))?;
    let release = format!("foothold.release={}", entry.release_id);
    let own = mode.parameters.iter().map(|parameter| (*parameter).to_owned());
    let parameters = [release].into_iter().chain(own).chain(entry.parameters.clone()).chain(consoles.to_vec());
    let parameters: Vec<String> =
        parameters.map(|parameter| quote("the kernel parameter", &parameter)).collect::<Result<_, _>>()?;
    let kernel = entry.kernel_path();
    Ok(format!(
        "menuentry {title} {{\n  \
           search --no-floppy --file --set=root --hint=$root /{kernel}\n  \
           if [ \"$grub_platform\" = pc ]; then\n    \
             linux16 /{kernel} {} edd=off\n    \
             initrd16 /{}\n  \
           else\n    \
             linux /{kernel} {}\n    \
             initrd /{}\n  \
           fi\n\
         }}\n",
        parameters.join(" "),
        entry.initrd_path(),
        parameters.join(" "),
        entry.initrd_path(),
    ))
}

/// A word of GRUB's language: within single quotes nothing has a meaning, so only a quote is impossible.
fn quote(what: &'static str, text: &str) -> Result<String, MenuError> {
    if text.contains('\'') || text.chars().any(char::is_control) {
        return Err(MenuError::Text { what, text: text.to_owned() });
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-=,/:+@%".contains(c);
    Ok(if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{text}'") })
}
