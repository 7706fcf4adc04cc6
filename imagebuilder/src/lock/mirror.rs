//! Where Debian's archives are: its own, and that of its security team.

use anyhow::Result;

use crate::error::HostLacks;
use crate::host::command::Run;
use crate::host::needs::KEYRING;

/// The Debian release everything is made of.
pub const SUITE: &str = "trixie";
/// Parts of the archive that packages are taken from: Debian's own, and what devices load into themselves.
const COMPONENTS: [&str; 2] = ["main", "non-free-firmware"];
/// What mirrors call the two archives.
const ARCHIVES: [&str; 2] = ["/debian/", "/debian-security/"];

/// Where the archives are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The main archive.
    pub main: String,
    /// Where the security archive may be; the first that answers counts.
    pub security: Vec<String>,
}

impl Mirror {
    /// The mirror that this host's apt uses for Debian, or `given` by the user. What is given is asked for the security
    /// archive, too, before the one of the host.
    pub fn of_host(given: Option<&str>) -> Result<Self> {
        let format = "$(REPO_URI)|$(LABEL)|$(SITE)";
        let out = Run::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]).output();
        let host = match (out, given) {
            (Ok(out), _) => Archives::of(&String::from_utf8_lossy(&out)),
            (Err(_), Some(_)) => Archives::default(),
            (Err(error), None) => return Err(error.into()),
        };
        Self::new(given, host).ok_or_else(|| {
            let hint = "name one: `foothold build --mirror URL`, or give apt a Debian source and run `apt-get update`";
            HostLacks { what: "a Debian mirror in apt's sources".into(), hint: hint.into() }.into()
        })
    }

    fn new(given: Option<&str>, host: Archives) -> Option<Self> {
        let main = given.map(str::to_owned).or(host.main)?;
        let beside = beside(&main);
        let mut security: Vec<String> = match given {
            Some(_) => beside.into_iter().chain(host.security).collect(),
            None => host.security.into_iter().chain(beside).collect(),
        };
        security.dedup();
        Some(Self { main, security })
    }

    /// `sources.list`, with this security archive.
    pub fn sources(&self, security: Option<&str>) -> String {
        let line = |uri: &str, suite: &str| {
            format!("deb [arch=amd64 signed-by={KEYRING}] {uri} {suite} {}\n", COMPONENTS.join(" "))
        };
        let mut text = line(&self.main, SUITE) + &line(&self.main, &format!("{SUITE}-updates"));
        text.extend(security.map(|uri| line(uri, &format!("{SUITE}-security"))));
        text
    }
}

/// The archives in apt's own sources.
#[derive(Debug, Default)]
struct Archives {
    main: Option<String>,
    security: Option<String>,
}

impl Archives {
    fn of(text: &str) -> Self {
        let with_label = |label: &str| {
            text.lines().find_map(|line| {
                let mut fields = line.split('|');
                let (uri, found) = (fields.next()?, fields.next()?);
                (found == label && !uri.starts_with('$')).then(|| uri.to_owned())
            })
        };
        Self { main: with_label("Debian"), security: with_label("Debian-Security") }
    }
}

/// Where a mirror of the main archive has that of the security team: beside it, as Debian's own servers do.
fn beside(main: &str) -> Option<String> {
    let whole = format!("{}/", main.trim_end_matches('/'));
    let [debian, security] = ARCHIVES;
    let at = whole.rfind(debian)?;
    let beside = format!("{}{security}{}", &whole[..at], &whole[at + debian.len()..]);
    Some(beside.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Archives, Mirror, beside};

    const HOST: &str = "http://sec.example/d/|Debian-Security|x\nhttp://vendor.example/|nodistro|x\nhttp://m.example/debian/|Debian|x\n";

    #[test]
    fn the_hosts_mirror_is_the_one_labelled_debian() {
        let mirror = Mirror::new(None, Archives::of(HOST)).expect("found");
        assert_eq!(mirror.main, "http://m.example/debian/");
        assert_eq!(mirror.security, ["http://sec.example/d/", "http://m.example/debian-security"]);
        assert_eq!(Mirror::new(None, Archives::of("http://v.example/|Ubuntu|x\n")), None);
    }

    #[test]
    fn a_mirror_that_is_given_is_asked_for_the_security_archive_before_the_host_is() {
        let mirror = Mirror::new(Some("https://near.example/debian"), Archives::of(HOST)).expect("given");
        assert_eq!(mirror.security, ["https://near.example/debian-security", "http://sec.example/d/"]);
        let alone = Mirror::new(Some("https://near.example/trixie"), Archives::default()).expect("given");
        assert_eq!(alone.security, [""; 0]);
        assert!(!alone.sources(None).contains("security"));
        assert!(
            mirror
                .sources(Some("http://s.example"))
                .ends_with("http://s.example trixie-security main non-free-firmware\n")
        );
    }

    #[test]
    fn mirrors_have_both_archives_side_by_side() {
        for (main, expected) in [
            ("http://deb.example/debian/", Some("http://deb.example/debian-security")),
            ("http://a.example/pub/debian", Some("http://a.example/pub/debian-security")),
            (
                "http://s.example/archive/debian/20251101T000000Z",
                Some("http://s.example/archive/debian-security/20251101T000000Z"),
            ),
            ("http://a.example/mirror", None),
        ] {
            assert_eq!(beside(main).as_deref(), expected, "{main}");
        }
    }
}
