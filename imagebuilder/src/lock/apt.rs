//! Resolving and fetching Debian packages with the host's apt, in folders of our own.
//!
//! apt checks the archive's signatures and solves dependencies; nothing of the host's package state is
//! read or changed, only which mirror it uses and how it reaches it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agent_api::release::Digest;
use anyhow::{Context, Result, bail};

pub use super::mirror::{Mirror, SUITE};
use super::{Deb, names};
use crate::host::command::Run;

/// apt with its own state folder.
#[derive(Debug)]
pub struct Apt {
    dir: PathBuf,
    mirror: Mirror,
}

impl Apt {
    /// Sets the folder up. Nothing is fetched yet.
    pub fn new(dir: &Path, mirror: &Mirror) -> Result<Self> {
        for sub in ["lists/partial", "cache/archives/partial"] {
            fs_err::create_dir_all(dir.join(sub))?;
        }
        for empty in ["status", "extended_states"] {
            fs_err::write(dir.join(empty), "")?;
        }
        fs_err::write(dir.join("apt.conf"), configuration(dir))?;
        Ok(Self { dir: dir.to_owned(), mirror: mirror.clone() })
    }

    fn run(&self, program: &str) -> Run {
        Run::new(program).arg("-c").arg(self.dir.join("apt.conf")).env("LC_ALL", "C.UTF-8").cwd(&self.dir)
    }

    /// Fetches the lists of packages. Returns whether those of the security archive are among them.
    pub fn update(&self) -> Result<bool> {
        self.update_with(None).context(
            "fetching Debian's package lists\nhint: is the network there? `--offline` builds from the cache alone",
        )?;
        for security in &self.mirror.security {
            match self.update_with(Some(security)) {
                Ok(()) => return Ok(true),
                Err(error) => log::info!("no security archive at `{security}`: {error:#}"),
            }
        }
        self.update_with(None)?;
        Ok(false)
    }

    fn update_with(&self, security: Option<&str>) -> Result<()> {
        fs_err::write(self.dir.join("sources.list"), self.mirror.sources(security))?;
        self.run("apt-get").args(["update", "--error-on=any"]).output()?;
        Ok(())
    }

    /// When the archive was last changed, as its signed Release files say (Debian repository format, `Date`): seconds
    /// since 1970.
    pub fn archive_date(&self) -> Result<u64> {
        let mut newest = None;
        for entry in fs_err::read_dir(self.dir.join("lists"))? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("_InRelease")) {
                let text = fs_err::read_to_string(&path)?;
                let date = release_date(&text).with_context(|| format!("reading `{}`", path.display()))?;
                newest = newest.max(Some(date));
            }
        }
        newest.context("Debian's mirror has no InRelease file\nhint: name another one with `--mirror URL`")
    }

    /// An error that names every one of `packages` (`NAME` or `NAME=VERSION`) that is no package of the archive. apt itself
    /// would take an unknown name for a regular expression, or for a wish to leave another package out.
    fn check_names(&self, packages: &[String]) -> Result<()> {
        let listed = self.run("apt-cache").arg("pkgnames").output()?;
        let listed = String::from_utf8_lossy(&listed);
        let known: BTreeSet<&str> = listed.lines().collect();
        let names = packages.iter().map(|asked| asked.split_once('=').map_or(asked.as_str(), |(name, _)| name));
        let unknown: BTreeSet<&str> = names.filter(|name| !known.contains(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let shown = self.run("apt-cache").args(["showpkg", "--"]).args(&unknown).output().unwrap_or_default();
        Err(names::complaint(&unknown, &known, &String::from_utf8_lossy(&shown)))
    }

    /// The packages that these and their dependencies come to. With `base`, also what every Debian system has.
    pub fn resolve(&self, packages: &[String], base: bool) -> Result<Vec<Deb>> {
        let described = self.describe(&self.solve(packages, base)?)?;
        Ok(described.into_iter().map(|(deb, _)| deb).collect())
    }

    /// The packages that these and their dependencies come to, less `without` and what only those need.
    pub fn resolve_without(&self, packages: &[String], without: &[String]) -> Result<Vec<Deb>> {
        self.check_names(packages)?;
        let mut solve = self.run("apt-get");
        if !without.is_empty() {
            let known = self.run("apt-cache").args(["show", "--no-all-versions"]).args(without).output()?;
            let file = self.dir.join("status.without");
            fs_err::write(&file, as_installed(&String::from_utf8_lossy(&known)))?;
            solve = solve.arg("-o").arg(format!("Dir::State::status={}", file.display()));
        }
        let solve = solve.args(["install", "--simulate", "--yes", "-o", "APT::Get::Show-Versions=1"]);
        let out = solve.args(packages).output().map_err(names::explain)?;
        let mut chosen = parse_simulation(&String::from_utf8_lossy(&out))?;
        // What is said to be there differs from what the archive has: apt would make that good.
        chosen.retain(|chosen| !without.iter().any(|name| chosen.split([' ', '=']).next() == Some(name)));
        let described = self.describe(&chosen)?;
        Ok(described.into_iter().map(|(deb, _)| deb).collect())
    }

    /// These packages alone, whatever they depend on.
    pub fn alone(&self, packages: &[String]) -> Result<Vec<Deb>> {
        self.check_names(packages)?;
        Ok(self.describe(packages)?.into_iter().map(|(deb, _)| deb).collect())
    }

    /// What these packages and their dependencies need beyond what every Debian system of this suite has, of whichever
    /// point release.
    pub fn resolve_beyond_base(&self, packages: &[String]) -> Result<Vec<Deb>> {
        let base = self.solve(&[], true)?;
        let base = base.iter().map(|chosen| chosen.split_once('=').map_or(chosen.as_str(), |(name, _)| name)).collect();
        let named = packages.iter().map(|name| name.split_once('=').map_or(name.as_str(), |(name, _)| name)).collect();
        Ok(beyond(self.describe(&self.solve(packages, false)?)?, &base, &named))
    }

    /// `NAME=VERSION` of all that would be installed on an empty system.
    fn solve(&self, packages: &[String], base: bool) -> Result<Vec<String>> {
        self.check_names(packages)?;
        let mut solve = self.run("apt-get").args(["install", "--simulate", "--yes", "-o", "APT::Get::Show-Versions=1"]);
        if base {
            solve = solve.args(["?essential", "?priority(required)", "apt"]);
        }
        let out = solve.args(packages).output().map_err(names::explain)?;
        parse_simulation(&String::from_utf8_lossy(&out))
    }

    /// The packages, sorted, and what each says it depends on.
    fn describe(&self, chosen: &[String]) -> Result<Vec<(Deb, String)>> {
        let out = self.run("apt-cache").args(["show", "--no-all-versions"]).args(chosen).output()?;
        let text = String::from_utf8_lossy(&out);
        let mut debs: Vec<(Deb, String)> =
            text.split("\n\n").filter(|s| !s.trim().is_empty()).map(parse_stanza).collect::<Result<_>>()?;
        debs.sort();
        debs.dedup();
        if debs.len() != chosen.len() {
            bail!("apt chose {} packages and described {}", chosen.len(), debs.len());
        }
        Ok(debs)
    }

    /// Downloads exactly these into `into`. A version that the mirror no longer has is named.
    pub fn download(&self, debs: &[&Deb], into: &Path, on_line: &mut (dyn FnMut(&str) + Send)) -> Result<()> {
        let names: Vec<_> = debs.iter().map(|deb| format!("{}:{}={}", deb.name, native(deb), deb.version)).collect();
        // The `_apt` user of the host need not be able to write here: these are plain downloads.
        let run = self.run("apt-get").args(["download", "-o", "APT::Sandbox::User=root"]).args(&names).cwd(into);
        run.output_with(on_line).map_err(|error| explain_missing(error.into()))?;
        Ok(())
    }
}

fn native(deb: &Deb) -> &str {
    if deb.architecture == "all" { "amd64" } else { &deb.architecture }
}

fn explain_missing(error: anyhow::Error) -> anyhow::Error {
    let text = error.to_string();
    let gone: Vec<_> = text.lines().filter(|line| line.contains("was not found")).map(str::trim).collect();
    if gone.is_empty() {
        return error.context("downloading Debian packages");
    }
    anyhow::anyhow!(
        "the mirror no longer has what the lock names:\n{}\nhint: move the lock: `foothold lock --update`, or build \
         from a saved cache (`foothold fetch --to DIR`)",
        gone.join("\n")
    )
}

fn parse_simulation(text: &str) -> Result<Vec<String>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("Inst "));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(" (").context("a line of apt's simulation without a version")?;
            let version = rest.split([' ', ')']).next().context("a version")?;
            Ok(format!("{name}={version}"))
        })
        .collect()
}

/// Mark of a version that came into the stable suite after its release (Developer's Reference, 5.11.2).
const UPDATE: &str = "deb13u";

/// The packages that are not in `base`, and those of `base` that one of them needs in a version that an older point
/// release may not have: an exact one, or that of an update. Those that were asked for by name stay, too.
fn beyond(described: Vec<(Deb, String)>, base: &BTreeSet<&str>, named: &BTreeSet<&str>) -> Vec<Deb> {
    let mut kept: BTreeSet<String> = described
        .iter()
        .map(|(deb, _)| deb.name.clone())
        .filter(|name| !base.contains(name.as_str()) || named.contains(name.as_str()))
        .collect();
    loop {
        let wanted =
            described.iter().filter(|(deb, _)| kept.contains(&deb.name)).flat_map(|(_, depends)| pinned(depends));
        let more: Vec<String> =
            wanted.filter(|name| base.contains(name) && !kept.contains(*name)).map(str::to_owned).collect();
        if more.is_empty() {
            return described.into_iter().map(|(deb, _)| deb).filter(|deb| kept.contains(&deb.name)).collect();
        }
        kept.extend(more);
    }
}

/// Packages that a list of dependencies names with a version that the suite's first release may not have (Debian Policy,
/// 7.1).
fn pinned(depends: &str) -> impl Iterator<Item = &str> {
    depends.split([',', '|']).filter_map(|relation| {
        let (name, rest) = relation.trim().split_once(" (")?;
        let version = rest.trim_end_matches(')');
        let pins = version.starts_with("= ") || (version.starts_with('>') && version.contains(UPDATE));
        pins.then(|| name.split(':').next().unwrap_or(name))
    })
}

/// Relations that a package which is not there must not bring in or keep out.
const RELATIONS: [&str; 6] = ["Depends: ", "Pre-Depends: ", "Recommends: ", "Suggests: ", "Breaks: ", "Conflicts: "];

/// Stanzas of `apt-cache show` as those of `/var/lib/dpkg/status`: apt takes the packages for installed.
fn as_installed(shown: &str) -> String {
    let mut text = String::new();
    for line in shown.lines().filter(|line| !RELATIONS.iter().any(|relation| line.starts_with(relation))) {
        text += line;
        text.push('\n');
        if line.starts_with("Package: ") {
            text += "Status: install ok installed\n";
        }
    }
    text
}

/// A package, and its dependencies as one list.
fn parse_stanza(stanza: &str) -> Result<(Deb, String)> {
    let fields: BTreeMap<&str, &str> =
        stanza.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once(": ")).collect();
    let field = |key: &str| {
        let found = fields.get(key).with_context(|| format!("a package without `{key}`:\n{stanza}"))?;
        anyhow::Ok((*found).to_owned())
    };
    let deb = Deb {
        name: field("Package")?,
        version: field("Version")?,
        architecture: field("Architecture")?,
        sha256: Digest::from_hex(&field("SHA256")?)?,
        size: field("Size")?.parse().context("Size")?,
    };
    let depends = ["Pre-Depends", "Depends"].iter().filter_map(|key| fields.get(key).copied());
    Ok((deb, depends.collect::<Vec<_>>().join(", ")))
}

/// The host's apt configuration stays in force (proxies, authentication), less its folders and hooks.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Default-Release;
APT::Architecture "amd64";
#clear APT::Architectures;
APT::Architectures {{ "amd64"; }};
APT::Install-Recommends "false";
APT::Install-Suggests "false";
Acquire::Languages "none";
Dir::State "{dir}";
Dir::State::lists "{dir}/lists";
Dir::State::status "{dir}/status";
Dir::State::extended_states "{dir}/extended_states";
Dir::Cache "{dir}/cache";
Dir::Cache::archives "archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::SourceList "{dir}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Debug::NoLocking "true";
"#
    )
}

/// `Date: Sat, 15 Nov 2025 09:21:00 UTC`, in seconds since 1970.
fn release_date(text: &str) -> Result<u64> {
    let date = text.lines().find_map(|line| line.strip_prefix("Date:")).context("found no `Date`, expected one")?;
    let date = date.trim();
    let local = date.strip_suffix(" UTC").with_context(|| format!("found `Date: {date}`, expected it in UTC"))?;
    let time = jiff::fmt::rfc2822::parse(&format!("{local} GMT")).with_context(|| format!("found `Date: {date}`"))?;
    u64::try_from(time.timestamp().as_second())
        .with_context(|| format!("found `Date: {date}`, expected one after 1970"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{beyond, parse_simulation, parse_stanza, release_date};

    #[test]
    fn an_archive_says_when_it_was_changed() {
        let text = "Hash: SHA256\n\nOrigin: Debian\nDate: Sat, 15 Nov 2025 09:21:00 UTC\nValid-Until: x\n";
        assert_eq!(release_date(text).expect("a date"), 1_763_198_460);
        for (wrong, told) in [
            ("Origin: Debian\n", "found no `Date`"),
            ("Date: yesterday UTC\n", "found `Date: yesterday UTC`"),
            ("Date: Sat, 15 Nov 2025 09:21:00 CET\n", "expected it in UTC"),
        ] {
            let error = release_date(wrong).expect_err("refused").to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_package_that_is_left_out_counts_as_there_and_asks_for_nothing() {
        let shown = "Package: a\nVersion: 1\nDepends: b (= 1)\nProvides: c\n\nPackage: b\nPre-Depends: d\n";
        let expected = "Package: a\nStatus: install ok installed\nVersion: 1\nProvides: c\n\nPackage: b\n\
                        Status: install ok installed\n";
        assert_eq!(super::as_installed(shown), expected);
    }

    #[test]
    fn a_simulation_names_what_would_be_installed() {
        let text = "Reading\nInst libc6 (2.41-12 Debian:13.1/stable [amd64])\nInst tzdata (2025b-4+deb13u1 Debian:13 [all]) []\nConf libc6 (2.41-12 x)\n";
        assert_eq!(parse_simulation(text).expect("parsed"), ["libc6=2.41-12", "tzdata=2025b-4+deb13u1"]);
    }

    #[test]
    fn a_stanza_without_a_digest_is_refused() {
        let error = parse_stanza("Package: a\nVersion: 1\nArchitecture: all\nSize: 3\n").expect_err("refused");
        assert!(error.to_string().starts_with("a package without `SHA256`"), "{error}");
    }

    #[test]
    fn a_package_of_the_base_comes_along_only_where_an_older_one_would_not_do() {
        let stanza = |name: &str, depends: &str| {
            let digest = "0".repeat(64);
            let text = format!(
                "Package: {name}\nVersion: 1\nArchitecture: all\nSize: 3\nSHA256: {digest}\nPre-Depends: {depends}\n"
            );
            parse_stanza(&text).expect("a stanza")
        };
        let all = vec![
            stanza("base-old", ""),
            stanza("base-pinned", "base-updated (>= 2-1+deb13u1)"),
            stanza("base-updated", "base-old"),
            stanza("base-asked", ""),
            stanza("lib", "base-old (>= 1.0), base-pinned:any (= 1)"),
            stanza("tool", "lib (>= 1) | other"),
        ];
        let base = BTreeSet::from(["base-old", "base-pinned", "base-updated", "base-asked", "base-unneeded"]);
        let kept: Vec<_> =
            beyond(all, &base, &BTreeSet::from(["tool", "base-asked"])).into_iter().map(|deb| deb.name).collect();
        assert_eq!(kept, ["base-pinned", "base-updated", "base-asked", "lib", "tool"]);
    }
}
