//! Names of Debian packages that were asked for, and apt's answers about them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::anyhow;

use super::apt::SUITE;
use crate::host::command::RunError;

/// What speaks against names that the archive does not have: `known` is what it has, `shown` what `apt-cache showpkg` says
/// of the unknown ones.
pub fn complaint(unknown: &BTreeSet<&str>, known: &BTreeSet<&str>, shown: &str) -> anyhow::Error {
    let providers = providers(shown);
    let mut text = String::new();
    for name in unknown {
        let _ = match providers.get(name) {
            Some(real) => {
                let real: Vec<_> = real.iter().map(|name| format!("`{name}`")).collect();
                writeln!(text, "`{name}` is a virtual package: {} provide it", real.join(", "))
            }
            None => match nearest(name, known) {
                Some(near) => writeln!(text, "Debian {SUITE} has no package `{name}`; `{near}` is the nearest name"),
                None => writeln!(text, "Debian {SUITE} has no package `{name}`"),
            },
        };
    }
    anyhow!(
        "{text}hint: name packages that Debian has; of those that provide a virtual one, name the one that you want"
    )
}

/// Real packages by the virtual one that they provide, of apt-cache's `showpkg`.
fn providers(shown: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let (mut package, mut among) = ("", false);
    for line in shown.lines() {
        if let Some(name) = line.strip_prefix("Package: ") {
            (package, among) = (name.trim(), false);
        } else if line.starts_with("Reverse Provides:") {
            among = true;
        } else if let (true, Some(real)) = (among, line.split_whitespace().next()) {
            found.entry(package).or_default().insert(real);
        }
    }
    found
}

/// The known name that is most like another one, if any is.
fn nearest<'a>(name: &str, known: &BTreeSet<&'a str>) -> Option<&'a str> {
    /// Less alike than this is another name.
    const ALIKE: f64 = 0.8;
    let rated = known.iter().map(|near| (strsim::jaro_winkler(name, near), *near)).filter(|(rate, _)| *rate >= ALIKE);
    rated.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, near)| near)
}

/// Why apt could not bring packages together: it says so on its standard output, and on stderr only that it gives up.
pub fn explain(error: RunError) -> anyhow::Error {
    let RunError::Failed { stdout, stderr, .. } = &error else {
        return anyhow::Error::new(error).context("resolving Debian packages");
    };
    // Indented lines go on with the relation above.
    let reasons = stdout.lines().skip_while(|line| !line.contains("unmet dependencies:")).skip(1);
    let mut told: Vec<&str> = reasons.take_while(|line| line.starts_with(' ')).map(str::trim).collect();
    told.extend(stderr.lines().filter_map(|line| line.trim().strip_prefix("E: ")));
    if told.is_empty() {
        return anyhow::Error::new(error).context("resolving Debian packages");
    }
    let hint = if told.iter().any(|line| line.starts_with("Version '")) {
        "`apt-cache policy NAME` on a trixie machine shows which versions there are"
    } else {
        "leave out one of those that exclude each other"
    };
    anyhow!("apt finds no way to install them together:\n  {}\nhint: {hint}", told.join("\n  "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::{complaint, explain};
    use crate::host::command::RunError;

    const SHOWN: &str = "Package: awk\nVersions: \n\nReverse Depends: \n  base-files,awk\nDependencies: \nProvides: \n\
        Reverse Provides: \noriginal-awk 1:20240728-1 (= )\nmawk 1.3.4.20250131-1 (= )\nmawk 1.3.4.20250131-1 (= )\n\
        Package: g++-11\nVersions: \n\nReverse Depends: \nDependencies: \nProvides: \nReverse Provides: \n";

    #[test]
    fn a_name_that_is_none_is_told_with_what_may_be_meant() {
        let known = BTreeSet::from(["g++", "g++-14", "lldpd", "mawk", "nodejs"]);
        let table = [
            ("awk", "`awk` is a virtual package: `mawk`, `original-awk` provide it\n"),
            ("g++-11", "Debian trixie has no package `g++-11`; `g++-14` is the nearest name\n"),
            ("node.js", "Debian trixie has no package `node.js`; `nodejs` is the nearest name\n"),
            ("lldpd-", "Debian trixie has no package `lldpd-`; `lldpd` is the nearest name\n"),
            ("zzz", "Debian trixie has no package `zzz`\n"),
        ];
        for (name, expected) in table {
            let told = complaint(&BTreeSet::from([name]), &known, SHOWN).to_string();
            assert!(told.starts_with(expected) && told.contains("\nhint: "), "{told}");
        }
    }

    #[test]
    fn apts_own_reason_is_what_the_user_reads() {
        let failed = |stdout: &str, stderr: &str| RunError::Failed {
            argv: "apt-get install".to_owned(),
            status: ExitStatus::from_raw(100 << 8),
            stderr: stderr.to_owned(),
            stdout: stdout.to_owned(),
        };
        let stdout = "Reading package lists...\nThe following packages have unmet dependencies:\n chrony : Conflicts: time-daemon\n \
            systemd-timesyncd : Conflicts: time-daemon\n";
        let told = explain(failed(stdout, "E: Unable to correct problems, you have held broken packages.")).to_string();
        let expected = "apt finds no way to install them together:\n  chrony : Conflicts: time-daemon\n  systemd-timesyncd : \
            Conflicts: time-daemon\n  Unable to correct problems, you have held broken packages.\nhint: leave out one of \
            those that exclude each other";
        assert_eq!(told, expected);
        let told = explain(failed("Reading\n", "E: Version '9.9' for 'mawk' was not found")).to_string();
        assert!(told.contains("  Version '9.9' for 'mawk' was not found\nhint: `apt-cache policy NAME`"), "{told}");
    }
}
