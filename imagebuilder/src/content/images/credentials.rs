//! Credentials for registries, from where `docker login` and `podman login` leave them.
//!
//! ```text
//! $REGISTRY_AUTH_FILE, else $DOCKER_CONFIG/config.json, else ~/.docker/config.json, else
//! $XDG_RUNTIME_DIR/containers/auth.json:   credHelpers[host]  ->  auths[host/path..host]  ->  credsStore
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use crate::host::command::Run;

/// Where Docker's own registry is in configurations.
const DOCKER_HUB: [&str; 4] = ["docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];
/// User name of a helper's answer that is no password but a token to get tokens with.
const TOKEN_USER: &str = "<token>";

/// The user's configuration; empty when there is none.
#[derive(Debug, Default)]
pub struct Credentials {
    file: PathBuf,
    config: Config,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

/// What a helper prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Said {
    username: String,
    secret: String,
}

impl Credentials {
    /// Those of this user.
    pub fn of_user() -> Result<Self> {
        let variable = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named =
            variable("REGISTRY_AUTH_FILE").or_else(|| variable("DOCKER_CONFIG").map(|dir| dir.join("config.json")));
        if let Some(file) = named.filter(|file| file.exists()) {
            return Self::read(&file);
        }
        let usual = variable("HOME").map(|home| home.join(".docker/config.json"));
        let other = variable("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json"));
        match usual.into_iter().chain(other).find(|file| file.exists()) {
            Some(file) => Self::read(&file),
            None => Ok(Self::default()),
        }
    }

    /// Those of a file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs_err::read(file)?;
        let config = serde_json::from_slice(&text).with_context(|| format!("reading `{}`", file.display()))?;
        Ok(Self { file: file.to_owned(), config })
    }

    /// What to say to the registry `host` about the repository `path`.
    pub fn of(&self, host: &str, path: &str) -> Result<RegistryAuth> {
        if let Some((name, helper)) = self.config.cred_helpers.iter().find(|(name, _)| names(name, host)) {
            return ask(helper, name).map(|said| said.unwrap_or(RegistryAuth::Anonymous));
        }
        if let Some((name, entry)) = self.entry(host, path)
            && let Some(auth) = entry.read().with_context(|| self.about(name))?
        {
            return Ok(auth);
        }
        let Some(store) = &self.config.creds_store else { return Ok(RegistryAuth::Anonymous) };
        let name = if DOCKER_HUB.contains(&host) { "https://index.docker.io/v1/" } else { host };
        match ask(store, name) {
            Ok(said) => Ok(said.unwrap_or(RegistryAuth::Anonymous)),
            // Docker keeps the store for every registry, most of which need nothing.
            Err(error) => {
                log::warn!("going on without credentials for {host}: {error:#}");
                Ok(RegistryAuth::Anonymous)
            }
        }
    }

    /// The entry whose key is the longest beginning of `host/path`.
    fn entry(&self, host: &str, path: &str) -> Option<(&str, &Entry)> {
        let fits = |key: &str| {
            let key = bare(key);
            let (at, below) = key.split_once('/').unwrap_or((key, ""));
            let inside = below.is_empty() || path == below || path.starts_with(&format!("{below}/"));
            (names(at, host) && inside).then_some(below.len())
        };
        let all = self.config.auths.iter().filter_map(|(key, entry)| Some((fits(key)?, key, entry)));
        all.max_by_key(|(length, ..)| *length).map(|(_, key, entry)| (key.as_str(), entry))
    }

    fn about(&self, name: &str) -> String {
        format!("reading the credentials for `{name}` in `{}`", self.file.display())
    }
}

impl Entry {
    fn read(&self) -> Result<Option<RegistryAuth>> {
        if !self.identitytoken.is_empty() {
            bail!("they are an identity token, which is not supported\nhint: log in with a user name and a password");
        }
        if self.auth.is_empty() {
            let given = !self.username.is_empty();
            return Ok(given.then(|| RegistryAuth::Basic(self.username.clone(), self.password.clone())));
        }
        let engine = base64::engine::general_purpose::STANDARD;
        let bytes = engine.decode(self.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) = bytes
            .as_deref()
            .and_then(|text| text.split_once(':'))
            .context("`auth` is not the base64 of `user:password`\nhint: log in again")?;
        Ok(Some(RegistryAuth::Basic(user.to_owned(), password.trim_end_matches('\0').to_owned())))
    }
}

/// A key without the scheme and the version of the interface that old programs wrote.
fn bare(key: &str) -> &str {
    let key = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    key.trim_end_matches("/v1").trim_end_matches("/v2")
}

/// Whether a key means that host.
fn names(key: &str, host: &str) -> bool {
    let key = bare(key);
    key == host || (DOCKER_HUB.contains(&key) && DOCKER_HUB.contains(&host))
}

/// Asks `docker-credential-<helper>`. `None`: it knows no such server.
fn ask(helper: &str, server: &str) -> Result<Option<RegistryAuth>> {
    let program = format!("docker-credential-{helper}");
    let answer = match Run::new(&program).arg("get").stdin(server.as_bytes().to_vec()).output() {
        Ok(answer) => answer,
        Err(crate::host::command::RunError::Failed { stdout, .. }) if stdout.contains("credentials not found") => {
            return Ok(None);
        }
        Err(error) => return Err(error).context(format!("asking `{program}` for the credentials of `{server}`")),
    };
    let said: Said =
        serde_json::from_slice(&answer).ok().with_context(|| format!("`{program}` answers with no JSON"))?;
    if said.username == TOKEN_USER {
        bail!(
            "`{program}` gives an identity token for `{server}`, which is not supported\nhint: log in with a user name \
             and a password"
        );
    }
    Ok(Some(RegistryAuth::Basic(said.username, said.secret)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use oci_client::secrets::RegistryAuth;

    use super::Credentials;

    fn config(dir: &Path, text: &str) -> Credentials {
        let file = dir.join("config.json");
        fs_err::write(&file, text).expect("written");
        Credentials::read(&file).expect("read")
    }

    fn basic(user: &str, password: &str) -> RegistryAuth {
        RegistryAuth::Basic(user.into(), password.into())
    }

    #[test]
    fn the_longest_beginning_of_a_repository_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        // The texts are `a:b`, `org:secret:with:colons` and `hub:x`.
        let credentials = config(
            dir.path(),
            r#"{"auths": {"quay.io": {"auth": "YTpi"}, "quay.io/org": {"auth": "b3JnOnNlY3JldDp3aXRoOmNvbG9ucw=="},
                "https://index.docker.io/v1/": {"auth": "aHViOng="}, "http://plain.example:5000/v2/": {"username": "u", "password": "p"}}}"#,
        );
        let of = |host, path| credentials.of(host, path).expect("readable");
        assert_eq!(of("quay.io", "app"), basic("a", "b"));
        assert_eq!(of("quay.io", "org/app"), basic("org", "secret:with:colons"));
        assert_eq!(of("quay.io", "organisation/app"), basic("a", "b"));
        assert_eq!(of("docker.io", "library/nginx"), basic("hub", "x"));
        assert_eq!(of("plain.example:5000", "a"), basic("u", "p"));
        assert_eq!(of("plain.example", "a"), RegistryAuth::Anonymous);
    }

    #[test]
    fn what_cannot_be_used_is_told_without_showing_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let credentials = config(
            dir.path(),
            r#"{"auths": {"a.example": {"auth": "hunter2"}, "b.example": {"identitytoken": "hunter2"}},
                "credHelpers": {"c.example": "of-no-such-kind"}}"#,
        );
        for (host, part) in [
            ("a.example", "log in again"),
            ("b.example", "identity token"),
            ("c.example", "asking `docker-credential-of-no-such-kind`"),
        ] {
            let text = format!("{:#}", credentials.of(host, "x").expect_err("refused"));
            assert!(text.contains(part) && !text.contains("hunter2"), "{text}");
        }
    }
}
