//! Being root without being root: the builder goes on in a user namespace of its own.
//!
//! Files of Debian trees belong to many users, and mounts need a superuser. In a user namespace that maps the ranges
//! of subordinate ids (`user_namespaces(7)`, `subuid(5)`) the builder is one, over nothing but its own files.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use super::command::Run;
use super::needs;
use crate::error::HostLacks;

/// Arguments of `unshare(1)`: root inside is this user, all other ids are subordinate ones.
pub const MAP: [&str; 3] = ["--user", "--map-root-user", "--map-auto"];

/// Goes on as root: returns at once where this process is, otherwise starts the program anew, with the same
/// arguments and as the same process, in a user namespace.
pub fn become_root() -> Result<()> {
    if needs::is_root() {
        return Ok(());
    }
    needs::ensure(&mut |_| ())?;
    Run::new("unshare").args(MAP).arg("true").output().map_err(|error| {
        let hint = "allow user namespaces (`sysctl kernel.apparmor_restrict_unprivileged_userns=0` where that is \
                    set), or run it as root";
        anyhow::Error::new(error).context(HostLacks { what: "user namespaces".into(), hint: hint.into() })
    })?;
    let never: Infallible = again()?;
    match never {}
}

/// The user that this process belongs to outside of a user namespace that [`become_root`] made.
pub fn outer_uid() -> u32 {
    let map = fs_err::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(&map, nix::unistd::getuid().as_raw())
}

/// The id outside that `uid` is mapped to (`user_namespaces(7)`, `uid_map`: first inside, first outside, how many).
fn outside(map: &str, uid: u32) -> u32 {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    let mut fits = lines.filter_map(|(inside, outside, many)| {
        let offset = uid.checked_sub(inside).filter(|offset| *offset < many)?;
        outside.checked_add(offset)
    });
    fits.next().unwrap_or(uid)
}

#[expect(clippy::disallowed_methods, reason = "it replaces this process and starts none")]
fn again() -> Result<Infallible> {
    let program = std::env::current_exe().context("finding this program")?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let error = Command::new("unshare").args(MAP).arg("--").arg(program).args(arguments).exec();
    Err(anyhow::Error::new(error).context("starting `unshare`"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_id_is_the_one_that_it_is_mapped_to() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        for (map, uid, expected) in
            [(map, 0, 1000), (map, 33, 100_032), ("0 0 4294967295\n", 7, 7), ("", 5, 5), (map, 70_000, 70_000)]
        {
            assert_eq!(super::outside(map, uid), expected, "{uid}");
        }
    }
}
