//! The box's one static binary, and the tiny `pause`, compiled by cargo from this workspace.
//!
//! Paths of the machine are mapped away, so that the same sources give the same bytes anywhere.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use agent_api::release::Digest;
use anyhow::{Context, Result, bail};

use crate::builder::AgentProfile;
use crate::host::command::Run;
use crate::host::{files, flock};
use crate::store::{Cache, Made, StageKey, hash};

/// What the box is compiled for: glibc, linked statically.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Programs and the names they have among the stage's files.
const PROGRAMS: &[&str] = &["foothold-agent", "pause"];
/// The workspace's own crates among what they are compiled from. The emulator of BMCs is that of `ViNO`'s
/// machines, too.
const OWN: [&str; 3] = ["foothold-agent", "agent-api", "foothold-qemu"];
/// Folders whose files they are compiled from.
const FOLDERS: [&str; 2] = ["agent", "qemu"];
/// What is compiled into them from elsewhere (`include_str!`).
const INCLUDED: [&str; 3] =
    ["images/os/debian-node/overlay", "packages/flannel/kube-flannel.yaml", "packages/kubernetes/patches"];
/// Folders of the crate from which nothing of them is compiled.
const BESIDE: [&str; 3] = ["benches", "examples", "tests"];

/// What cargo has of the caller's environment: where programs and their files are, and how the network is reached. Everything
/// else may change the result: flags and wrappers of the compiler, profiles (`CARGO_PROFILE_...`, `CARGO_INCREMENTAL`),
/// another C compiler and its flags, and what cargo itself sets for its children.
const KEPT_ENV: [&str; 18] = [
    "ALL_PROXY",
    "CARGO_HOME",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LD_LIBRARY_PATH",
    "NO_PROXY",
    "PATH",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SSH_AUTH_SOCK",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
/// Beginnings of names of more of these (The Cargo Book, "Environment Variables").
const KEPT_CARGO: [&str; 5] = ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];

/// Compiles them, or takes them from the cache.
pub fn make(
    cache: &Cache,
    workspace: &Path,
    profile: AgentProfile,
    offline: bool,
    say: &(dyn Fn(&str) + Sync),
) -> Result<(Made, bool)> {
    let compiler = Run::new("rustc").arg("-vV").output().context("asking for the Rust compiler's version")?;
    let sources = sources(workspace)?;
    let key = key(profile, &String::from_utf8_lossy(&compiler), &sources);
    cache.stage(&key, &mut || say("another build is compiling the agent"), |work| {
        let name = format!("{}-target", profile.name());
        let _held = flock::lock(&cache.path("locks").join(&name), &mut || say("another build compiles"))?;
        let target = Target { folder: cache.path(&name), profile };
        fs_err::create_dir_all(&target.folder)?;
        target.forget_another_clone(workspace)?;
        target.forget_changed(&sources)?;
        while_they_are(workspace, &sources, || target.compile(workspace, offline, say))?;
        let mut made = Made::default();
        for program in PROGRAMS {
            let copy = work.path().join(program);
            fs_err::copy(target.folder.join(TARGET).join(profile.name()).join(program), &copy)?;
            made.files.insert((*program).to_owned(), cache.adopt(&copy)?);
        }
        Ok(made)
    })
}

/// Each profile has a name of its own in the cache, and a target folder.
fn key(profile: AgentProfile, compiler: &str, sources: &[(String, Digest)]) -> StageKey {
    let key = StageKey::new(profile.name(), 3).with("rustc", compiler.replace('\n', " "));
    sources.iter().fold(key, |key, (part, digest)| key.with(part, digest))
}

/// What the programs are compiled from, each part with the digest of its files.
fn sources(workspace: &Path) -> Result<Vec<(String, Digest)>> {
    let mut parts: Vec<String> = ["Cargo.toml", "Cargo.lock"].into_iter().chain(INCLUDED).map(str::to_owned).collect();
    for folder in FOLDERS {
        for entry in fs_err::read_dir(workspace.join(folder))? {
            let name = entry?.file_name();
            if !BESIDE.iter().any(|beside| *beside == name) {
                parts.push(format!("{folder}/{}", name.to_string_lossy()));
            }
        }
    }
    parts.sort();
    let digest = |part: String| Ok((part.clone(), hash::tree(&workspace.join(part))?));
    parts.into_iter().map(digest).collect()
}

/// The own crate that a part of the sources belongs to.
fn crate_of(part: &str) -> &'static str {
    let [agent, api, qemu] = OWN;
    match part {
        "agent/api" => api,
        part if part.starts_with("qemu/") => qemu,
        _ => agent,
    }
}

/// Does the work, and refuses what came of it when somebody has changed these sources meanwhile: the cache would have it
/// under their name.
fn while_they_are<T>(workspace: &Path, sources: &[(String, Digest)], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let made = work()?;
    let now = self::sources(workspace)?;
    let differs = |here: &[(String, Digest)], there: &[(String, Digest)]| {
        here.iter().find(|part| !there.contains(part)).map(|(part, _)| workspace.join(part))
    };
    // A part may have come, or gone.
    match differs(&now, sources).or_else(|| differs(sources, &now)) {
        None => Ok(made),
        Some(part) => {
            bail!("`{}` has changed while the agent was compiled from it\nhint: build again", part.display())
        }
    }
}

/// A command of cargo for the box's programs, with nothing of the caller's that would change the result.
pub(crate) fn cargo(command: &str, workspace: &Path) -> Run {
    let run = Run::new("cargo").args([command, "--locked", "--target", TARGET]).cwd(workspace).clear_env();
    let kept = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    kept.filter(|(name, _)| is_kept(name))
        .fold(run, |run, (name, value)| run.env(&name, value))
        .env("LC_ALL", "C.UTF-8")
}

fn is_kept(variable: &str) -> bool {
    KEPT_ENV.contains(&variable) || KEPT_CARGO.iter().any(|begin| variable.starts_with(begin))
}

/// Where cargo keeps what it compiles, and by which profile.
struct Target {
    folder: PathBuf,
    profile: AgentProfile,
}

impl Target {
    /// Removes what was compiled of the own crates from another clone's sources: cargo names them alike in every clone and
    /// tells old from new by the times of files, which say nothing from one clone to the next.
    fn forget_another_clone(&self, workspace: &Path) -> Result<()> {
        let mark = self.folder.join("compiled-from");
        let here = workspace.as_os_str().as_bytes();
        if fs_err::read(&mark).is_ok_and(|clone| clone == here) {
            return Ok(());
        }
        // Without the mark nobody knows from where, should the power go now.
        if mark.exists() {
            fs_err::remove_file(&mark)?;
        }
        let own = OWN.iter().flat_map(|own| ["--package", own]);
        let run = self.cargo("clean", workspace).arg("--quiet").args(own);
        run.output().context("removing what was compiled from another clone")?;
        Ok(files::write_whole(&mark, here)?)
    }

    /// Has cargo compile the own crates again that have changed since it was called the last time: it goes by the times of
    /// files alone, and one that was copied back, or written under another clock, may be older than what was compiled.
    fn forget_changed(&self, sources: &[(String, Digest)]) -> Result<()> {
        let mark = self.folder.join("compiled-sources.json");
        let before: Vec<(String, Digest)> =
            fs_err::read(&mark).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let changed = sources.iter().filter(|part| !before.contains(part));
        let gone = before.iter().filter(|part| !sources.contains(part));
        let crates: BTreeSet<&str> = changed.chain(gone).map(|(part, _)| crate_of(part)).collect();
        // What cargo knows of a crate, each time in a folder that is named after it.
        let known = self.folder.join(TARGET).join(self.profile.name()).join(".fingerprint");
        let entries = if known.exists() { fs_err::read_dir(&known)?.collect::<Result<_, _>>()? } else { Vec::new() };
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.rsplit_once('-').is_some_and(|(own, _)| crates.contains(own)) {
                fs_err::remove_dir_all(entry.path())?;
            }
        }
        Ok(files::write_whole(&mark, &serde_json::to_vec(sources)?)?)
    }

    /// A command of cargo that works on what is compiled.
    fn cargo(&self, command: &str, workspace: &Path) -> Run {
        let run = cargo(command, workspace).args(["--profile", self.profile.name()]);
        run.env("CARGO_TARGET_DIR", &self.folder).env("CARGO_TERM_COLOR", "never")
    }

    fn compile(&self, workspace: &Path, offline: bool, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
            .context("neither CARGO_HOME nor HOME is set")?;
        // The workspace's own paths are relative for rustc. None of these names the workspace: another clone compiles its
        // own crates only.
        let flags = [
            "-Ctarget-feature=+crt-static".to_owned(),
            "-Clink-arg=-Wl,--build-id=none".to_owned(),
            format!("--remap-path-prefix={}=/target", self.folder.display()),
            format!("--remap-path-prefix={}=/cargo", cargo_home.display()),
        ];
        let mut run = self
            .cargo("build", workspace)
            .args(["--package", "foothold-agent", "--bins"])
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        if offline {
            run = run.arg("--offline");
        }
        run.output_with(&mut |line| say(line.trim())).context("compiling the agent")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::{OWN, Target, is_kept, key, sources, while_they_are};
    use crate::builder::AgentProfile;
    use crate::store::StageKey;

    /// The workspace that this crate is of.
    fn workspace() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder").to_owned()
    }

    #[test]
    fn nothing_of_the_callers_that_would_change_the_programs_is_seen_by_cargo() {
        for kept in
            ["PATH", "HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN", "https_proxy", "CARGO_NET_OFFLINE", "SSL_CERT_FILE"]
        {
            assert!(is_kept(kept), "{kept}");
        }
        for foreign in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_INCREMENTAL",
            "CARGO_PROFILE_AGENT_OPT_LEVEL",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CARGO_MANIFEST_DIR",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_BOOTSTRAP",
            "CC",
            "CFLAGS",
            "ZSTD_SYS_USE_PKG_CONFIG",
            "SOURCE_DATE_EPOCH",
            "TZ",
        ] {
            assert!(!is_kept(foreign), "{foreign}");
        }
    }

    /// Caches that are filled stay good: the first key is as it was when there was one profile.
    #[test]
    fn a_development_build_has_another_key_than_the_agent_of_a_site() {
        let sources = sources(&workspace()).expect("hashed");
        let keys =
            [AgentProfile::Site, AgentProfile::Development].map(|profile| key(profile, "rustc 1\nhost\n", &sources));
        let first = StageKey::new("agent", 3).with("rustc", "rustc 1 host ");
        assert_eq!(keys[0], sources.iter().fold(first, |key, (part, digest)| key.with(part, digest)));
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn each_profile_is_one_of_the_workspace() {
        let manifest = fs_err::read_to_string(workspace().join("Cargo.toml")).expect("a manifest");
        for profile in [AgentProfile::Site, AgentProfile::Development] {
            assert!(manifest.contains(&format!("[profile.{}]\n", profile.name())), "{profile:?}");
        }
    }

    #[test]
    fn what_was_compiled_from_another_clone_is_not_taken() {
        let (dir, here) = (tempfile::tempdir().expect("a folder"), workspace());
        let kept = dir.path().join("x86_64-unknown-linux-gnu/agent/libfoothold_agent.rlib");
        let compiled = |clone: &str| {
            fs_err::create_dir_all(kept.parent().expect("a folder")).expect("folders");
            fs_err::write(&kept, clone).expect("written");
            fs_err::write(dir.path().join("compiled-from"), clone).expect("written");
        };
        let target = Target { folder: dir.path().to_owned(), profile: AgentProfile::Site };
        compiled(here.to_str().expect("text"));
        target.forget_another_clone(&here).expect("nothing to do");
        assert!(kept.exists(), "its own is kept");
        compiled("/another/clone");
        target.forget_another_clone(&here).expect("removed");
        assert!(!kept.exists(), "another clone's is removed");
        assert_eq!(
            fs_err::read_to_string(dir.path().join("compiled-from")).expect("read"),
            here.to_str().expect("text")
        );
    }

    /// cargo itself takes a changed file for compiled when it is older than what was compiled.
    #[test]
    fn a_crate_whose_files_have_changed_is_compiled_again_however_old_they_are() {
        let dir = tempfile::tempdir().expect("a folder");
        let target = Target { folder: dir.path().to_owned(), profile: AgentProfile::Site };
        let known = dir.path().join("x86_64-unknown-linux-gnu/agent/.fingerprint");
        let all = ["agent-api-1a", "foothold-agent-2b", "foothold-qemu-3c", "serde-4d"];
        let left = |parts: &[(&str, &str)]| -> Vec<String> {
            for name in all {
                fs_err::create_dir_all(known.join(name)).expect("made");
            }
            let parts: Vec<_> =
                parts.iter().map(|(part, text)| ((*part).to_owned(), super::hash::bytes(text.as_bytes()))).collect();
            target.forget_changed(&parts).expect("looked through");
            let mut left: Vec<_> =
                fs_err::read_dir(&known).expect("listed").map(|entry| entry.expect("read").file_name()).collect();
            left.sort();
            left.into_iter().map(|name| name.into_string().expect("text")).collect()
        };
        let first = [("Cargo.lock", "1"), ("agent/api", "1"), ("agent/src", "1"), ("qemu/src", "1")];
        assert_eq!(left(&first), ["serde-4d"], "nothing is known yet");
        assert_eq!(left(&first), all);
        let [lock, api, _, qemu] = first;
        assert_eq!(left(&[lock, api, ("agent/src", "2"), qemu]), ["agent-api-1a", "foothold-qemu-3c", "serde-4d"]);
        assert_eq!(left(&[lock, ("agent/api", "2"), ("agent/src", "2"), qemu]), all[1..]);
        assert_eq!(left(&[lock, ("agent/api", "2"), ("agent/src", "2")]), [all[0], all[1], all[3]]);
    }

    #[test]
    fn the_crates_in_the_folders_are_the_own_ones() {
        let manifests =
            ["agent/Cargo.toml", "agent/api/Cargo.toml", "qemu/Cargo.toml"].map(|file| workspace().join(file));
        let found: Vec<PathBuf> = super::FOLDERS.iter().flat_map(|folder| walkdir(&workspace().join(folder))).collect();
        assert_eq!(found, manifests, "each crate of the agent must be in OWN");
        for (manifest, own) in manifests.iter().zip(OWN) {
            let text = fs_err::read_to_string(manifest).expect("a manifest");
            assert!(text.contains(&format!("name = \"{own}\"")), "{own}");
        }
    }

    #[test]
    fn what_is_compiled_in_from_elsewhere_is_known() {
        let workspace = workspace();
        let mut met = BTreeSet::new();
        for file in super::FOLDERS.iter().flat_map(|folder| sources_below(&workspace.join(folder))) {
            let text = fs_err::read_to_string(&file).expect("a source");
            for include in ["include_str!(", "include_bytes!("] {
                for rest in text.split(include).skip(1) {
                    let path = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                    let path = path.unwrap_or_else(|| panic!("`{}`: a path as it is", file.display()));
                    let path = file.parent().expect("a folder").join(path);
                    let path = fs_err::canonicalize(path).expect("it is there");
                    met.insert(path.strip_prefix(&workspace).expect("of the workspace").to_owned());
                }
            }
        }
        let elsewhere = |path: &&PathBuf| !super::FOLDERS.iter().any(|folder| path.starts_with(folder));
        // What lies in `tests` is compiled into tests alone.
        let elsewhere: Vec<_> = met.iter().filter(elsewhere).filter(|path| !path.starts_with("tests")).collect();
        for path in &elsewhere {
            let known = super::INCLUDED.iter().any(|included| path.starts_with(included));
            assert!(known, "`{}` is compiled into the agent: name it in INCLUDED", path.display());
        }
        for included in super::INCLUDED {
            assert!(elsewhere.iter().any(|path| path.starts_with(included)), "nothing of `{included}` is compiled in");
        }
    }

    /// All Rust files below a folder.
    fn sources_below(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = walkdir::WalkDir::new(folder).into_iter().map(|entry| entry.expect("an entry").into_path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
    }

    /// Each `Cargo.toml` in a folder and its children.
    fn walkdir(folder: &Path) -> Vec<PathBuf> {
        let children = fs_err::read_dir(folder).expect("a folder").map(|child| child.expect("a child").path());
        let all = std::iter::once(folder.to_owned()).chain(children).map(|folder| folder.join("Cargo.toml"));
        all.filter(|file| file.is_file()).collect()
    }

    #[test]
    fn nothing_is_kept_of_sources_that_change_meanwhile() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = ["agent/src/main.rs", "agent/tests/main.rs", "qemu/src/lib.rs", "Cargo.toml", "Cargo.lock"];
        for name in own.into_iter().chain(super::INCLUDED) {
            let file = dir.path().join(name);
            fs_err::create_dir_all(file.parent().expect("a folder")).expect("folders");
            fs_err::write(file, name).expect("written");
        }
        let before = sources(dir.path()).expect("hashed");
        assert_eq!(while_they_are(dir.path(), &before, || Ok(7)).expect("nothing changed"), 7);
        let edit = |name: &str| Ok(fs_err::write(dir.path().join(name), "edited")?);
        while_they_are(dir.path(), &before, || edit("agent/tests/main.rs")).expect("nothing is compiled from tests");
        let error = while_they_are(dir.path(), &before, || edit("agent/src/main.rs")).expect_err("edited").to_string();
        assert!(error.contains("agent/src` has changed while"), "{error}");
        let before = sources(dir.path()).expect("hashed");
        let error = while_they_are(dir.path(), &before, || edit(super::INCLUDED[1])).expect_err("edited").to_string();
        assert!(error.contains("kube-flannel.yaml` has changed while"), "{error}");
    }
}
