//! What the simulator is given to read.

use std::net::SocketAddrV4;
use std::path::Path;

use super::LONGEST_NAME;
use crate::bmc::change::hex;

/// The program for the chassis: hands the request on and waits for the answer, which is all on the simulator's own
/// pipes. When we are gone, so are they.
pub(super) const SCRIPT: &str = "#!/bin/sh\n\
                                 echo \"chassis: $*\" >&2\n\
                                 IFS= read -r answer || exit 1\n\
                                 [ \"$answer\" != no ] || exit 1\n\
                                 printf '%s\\n' \"$answer\"\n";

/// Answer that makes the program fail, and the request of the client with it.
pub(super) const NO: &str = "no";

/// The management controller at 0x20: a chassis device (IPMI 2.0, 20.1) with an event log, and messages on the console.
pub(super) const COMMANDS: &str = "mc_setbmc 0x20\n\
                                   mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                                   sel_enable 0x20 1000 0x0a\n\
                                   debug msg\n\
                                   mc_enable 0x20\n";

/// Whether a name or password can stand in the file.
pub(super) fn can_be_written(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"\"'\\".contains(c);
    (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(plain)
}

/// Another password than that one.
pub(super) fn another(password: &str) -> String {
    let tail: String = password.chars().skip(1).collect();
    format!("{}{tail}", if password.starts_with('x') { 'y' } else { 'x' })
}

/// `lan.conf`: one channel with one administrator. Users without a name have no access. Without a GUID the simulator
/// knows nothing of RMCP+.
pub(super) fn configuration(listen: SocketAddrV4, user: &str, password: &str, script: &Path) -> String {
    let guid = hex(&rand::random::<[u8; 16]>());
    format!(
        "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr {} {}\n    priv_limit admin\n    \
         allowed_auths_callback none md2 md5 straight\n    allowed_auths_user none md2 md5 straight\n    \
         allowed_auths_operator none md2 md5 straight\n    allowed_auths_admin none md2 md5 straight\n    \
         guid {guid}\n  endlan\n  chassis_control \"/bin/sh '{}'\"\n  \
         user 2 true \"{user}\" \"{password}\" admin 10 none md2 md5 straight\n",
        listen.ip(),
        listen.port(),
        script.display(),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("admin", true)]
    #[case("sixteen-letters!", true)]
    #[case("seventeen-letters", false)]
    #[case("", false)]
    #[case("a\"b", false)]
    #[case("a b", false)]
    #[case("ä", false)]
    fn an_account_fits_into_the_file_or_is_refused(#[case] text: &str, #[case] fits: bool) {
        assert_eq!(can_be_written(text), fits);
    }

    #[test]
    fn another_password_is_another_one_of_the_same_length() {
        for password in ["secret", "xy", "x"] {
            let other = another(password);
            assert!(other != password && other.len() == password.len(), "{other}");
        }
    }
}
