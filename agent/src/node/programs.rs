//! Brings what the server's system lacks, by digest.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use agent_api::hash::{self, Hashed};
use anyhow::{Context as _, ensure};

use super::Server;
use super::plan::Program;
use crate::host::files;
use crate::http::client;

/// A download without any byte for so long is ended.
const SILENCE: Duration = Duration::from_secs(60);

/// The files that are missing or differ.
pub fn missing(server: &Server, programs: &[Program]) -> anyhow::Result<Vec<Program>> {
    let mut missing = Vec::new();
    for program in programs {
        let path = server.path(&program.path);
        let there = path.exists() && hash::blob(fs_err::File::open(&path)?)?.digest == program.digest;
        if !there {
            missing.push(program.clone());
        }
    }
    Ok(missing)
}

/// Links a file to another one with the same digest, if there is one: Kubernetes' own programs are one file under several
/// names. Returns whether it did.
pub fn link(server: &Server, program: &Program, all: &[Program]) -> anyhow::Result<bool> {
    let path = server.path(&program.path);
    for same in all.iter().filter(|same| same.digest == program.digest && same.path != program.path) {
        if missing(server, std::slice::from_ref(same))?.is_empty() {
            let folder = path.parent().unwrap_or(Path::new("/"));
            fs_err::create_dir_all(folder)?;
            let beside = files::draft_of(&path);
            files::remove(&beside)?;
            // Not possible between file systems: then it is fetched.
            if fs_err::hard_link(server.path(&same.path), &beside).is_ok() {
                fs_err::rename(&beside, &path)?;
                files::sync_dir(folder)?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Fetches a file beside its place, checks it, and moves it there, so that at any time either the old or the new file is
/// there. Returns its size in bytes.
pub async fn fetch(server: &Server, program: &Program) -> anyhow::Result<u64> {
    let path = server.path(&program.path);
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs_err::create_dir_all(folder)?;
    let beside = files::draft_of(&path);
    let http = client::plain().read_timeout(SILENCE).connect_timeout(SILENCE).build()?;
    let fetching = || format!("fetching `{}`", program.url);
    let mut answer = http.get(&program.url).send().await.with_context(fetching)?;
    ensure!(answer.status().is_success(), "`{}` answers {}", program.url, answer.status());
    let file = fs_err::File::create(&beside)?;
    let mut out = Hashed::new(&file);
    while let Some(chunk) = answer.chunk().await.with_context(fetching)? {
        out.write_all(&chunk)?;
    }
    let got = out.finish();
    ensure!(
        got.digest == program.digest,
        "`{}` has the digest {}, and {} was asked for; hint: the box sends another file than its release lists",
        program.url,
        got.digest,
        program.digest
    );
    file.set_permissions(std::fs::Permissions::from_mode(0o755))?;
    file.sync_all()?;
    fs_err::rename(&beside, &path)?;
    files::sync_dir(folder)?;
    Ok(got.size)
}
