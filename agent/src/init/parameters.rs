//! The kernel's command line, as far as it is for us.

use agent_api::boot::Mode;

use crate::disk::decide::DataChoice;

/// What to do when the box cannot start (`foothold.onfailure=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Keep the message on the screen.
    #[default]
    Stay,
    /// Switch off after the message.
    PowerOff,
}

/// Everything the command line tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// `foothold.release=`: id of the release to start.
    pub release: Option<String>,
    /// `foothold.mode=`.
    pub mode: Mode,
    /// `foothold.data=`.
    pub data: DataChoice,
    /// `foothold.onfailure=`.
    pub on_failure: OnFailure,
    /// Parameters of ours that mean nothing, for the screen.
    pub unknown: Vec<String>,
}

impl Parameters {
    /// Reads the text of `/proc/cmdline`. The last of several wins, as in the kernel.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for word in text.split_whitespace() {
            let Some((key, value)) = word.strip_prefix("foothold.").and_then(|rest| rest.split_once('=')) else {
                continue;
            };
            match (key, value) {
                ("release", id) => found.release = Some(id.to_ascii_lowercase()),
                ("mode", "run") => found.mode = Mode::Run,
                ("mode", "safe") => found.mode = Mode::Safe,
                ("mode", "check") => found.mode = Mode::Check,
                ("data", "auto") => found.data = DataChoice::Auto,
                ("data", "ram") => found.data = DataChoice::Ram,
                ("onfailure", "stay") => found.on_failure = OnFailure::Stay,
                ("onfailure", "poweroff") => found.on_failure = OnFailure::PowerOff,
                ("site", _) => {}
                _ => found.unknown.push(word.to_owned()),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use agent_api::boot::Mode;

    use super::{OnFailure, Parameters};
    use crate::disk::decide::DataChoice;

    #[test]
    fn our_parameters_are_read_and_the_last_wins() {
        let found = Parameters::parse(
            "BOOT_IMAGE=/vmlinuz foothold.release=AB foothold.mode=safe foothold.mode=check quiet foothold.data=ram \
             foothold.onfailure=poweroff foothold.site=eyJ9\n",
        );
        assert_eq!(found.release.as_deref(), Some("ab"));
        assert_eq!((found.mode, found.data, found.on_failure), (Mode::Check, DataChoice::Ram, OnFailure::PowerOff));
        assert!(found.unknown.is_empty());
    }

    #[test]
    fn what_means_nothing_is_kept_for_the_screen() {
        assert_eq!(Parameters::parse("foothold.mode=sfae ro").unknown, ["foothold.mode=sfae"]);
    }
}
