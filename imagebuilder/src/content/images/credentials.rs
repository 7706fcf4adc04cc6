//! Credentials for registries, from where `docker login` and `podman login` leave them.
//!
//! ```text
//! $REGISTRY_AUTH_FILE, $DOCKER_AUTH_CONFIG (the text itself), $DOCKER_CONFIG/config.json
//! podman:  $XDG_RUNTIME_DIR/containers/auth.json, /run/user/UID/..., /run/containers/UID/auth.json, ~/.config/containers/auth.json
//! docker:  ~/.docker/config.json, ~/.dockercfg
//! ```
//! The first place that knows the host counts; in each: `credHelpers[host]`, `auths[host/path..host]`, `credsStore`.
//! Source: containers-auth.json(5), docker login.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use crate::host::command::Run;
use crate::host::userns;

/// Where Docker's own registry is in configurations.
const DOCKER_HUB: [&str; 4] = ["docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];
/// User name of a helper's answer that is no password but a token to get tokens with.
const TOKEN_USER: &str = "<token>";
/// Base64 with or without its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Variable that holds a configuration itself, as continuous integration gives it.
const AUTH_CONFIG: &str = "DOCKER_AUTH_CONFIG";

/// The user's configurations, the first one that knows a host first.
#[derive(Debug, Default)]
pub struct Credentials {
    places: Vec<Place>,
}

/// A configuration, or why it cannot be read: that matters only when nothing before it knows the host.
#[derive(Debug)]
struct Place {
    /// As messages name it.
    name: String,
    config: Result<Config, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default, deserialize_with = "nullable")]
    auths: BTreeMap<String, Entry>,
    #[serde(default, deserialize_with = "nullable")]
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

/// A value that may be `null`.
fn nullable<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

/// What to say to a registry, and where that is from.
#[derive(Clone, PartialEq)]
pub struct Login {
    /// What to say.
    pub auth: RegistryAuth,
    /// Who was asked for, as it is logged in to.
    host: String,
    /// The file or program that knew it.
    from: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("host", &self.host).field("from", &self.from).finish_non_exhaustive()
    }
}

impl Login {
    /// What to do when the registry refuses.
    pub fn hint(&self) -> String {
        let host = &self.host;
        if let Some(from) = &self.from {
            return format!("hint: it refuses the credentials of {from}: log in to `{host}` again");
        }
        let elsewhere = std::env::var("SUDO_USER").ok().filter(|user| !user.is_empty()).map(|user| {
            format!("; under `sudo` those of `{user}` are not looked for: name their file with `--authfile`")
        });
        let elsewhere = elsewhere.unwrap_or_default();
        format!("hint: log in with `docker login {host}` or `podman login {host}`{elsewhere}")
    }
}

/// What a helper prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Said {
    username: String,
    secret: String,
}

/// Where this user's tools look, in order.
struct User {
    runtime: Option<PathBuf>,
    config: Option<PathBuf>,
    home: Option<PathBuf>,
    docker: Option<PathBuf>,
    named: Option<PathBuf>,
    uid: u32,
}

impl User {
    fn of_this_process() -> Self {
        let variable = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            runtime: variable("XDG_RUNTIME_DIR"),
            config: variable("XDG_CONFIG_HOME"),
            home: variable("HOME"),
            docker: variable("DOCKER_CONFIG"),
            named: variable("REGISTRY_AUTH_FILE"),
            uid: userns::outer_uid(),
        }
    }

    fn named(&self) -> Vec<PathBuf> {
        self.named.iter().cloned().chain(self.docker.iter().map(|dir| dir.join("config.json"))).collect()
    }

    fn usual(&self) -> Vec<PathBuf> {
        let uid = self.uid;
        let mut files: Vec<PathBuf> = self.runtime.iter().map(|dir| dir.join("containers/auth.json")).collect();
        files.push(format!("/run/user/{uid}/containers/auth.json").into());
        files.push(format!("/run/containers/{uid}/auth.json").into());
        let config = self.config.clone().or_else(|| self.home.as_ref().map(|home| home.join(".config")));
        files.extend(config.map(|dir| dir.join("containers/auth.json")));
        files.extend(self.home.iter().flat_map(|home| [home.join(".docker/config.json"), home.join(".dockercfg")]));
        files
    }
}

impl Credentials {
    /// Those of this user.
    pub fn of_user() -> Self {
        let user = User::of_this_process();
        let mut places = files(user.named());
        if let Some(text) = std::env::var(AUTH_CONFIG).ok().filter(|text| !text.trim().is_empty()) {
            let config = Config::parse(text.as_bytes(), false).map_err(|error| format!("{error:#}"));
            places.push(Place { name: format!("the variable `{AUTH_CONFIG}`"), config });
        }
        places.extend(files(user.usual()));
        Self { places }
    }

    /// Those of a file.
    pub fn read(file: &Path) -> Result<Self> {
        let config = Config::read(file).with_context(|| format!("reading `{}`", file.display()))?;
        Ok(Self { places: vec![Place { name: format!("`{}`", file.display()), config: Ok(config) }] })
    }

    /// What to say to the registry `host` about the repository `path`.
    pub fn of(&self, host: &str, path: &str) -> Result<Login> {
        for place in &self.places {
            let config = match &place.config {
                Ok(config) => config,
                Err(error) => bail!("reading the credentials in {}: {error}\nhint: mend it, or remove it", place.name),
            };
            if let Some((auth, from)) = config.of(host, path, &place.name)? {
                return Ok(Login { auth, host: host.to_owned(), from: Some(from) });
            }
        }
        Ok(Login { auth: RegistryAuth::Anonymous, host: host.to_owned(), from: None })
    }
}

/// Those of these files that are there, each once.
fn files(paths: Vec<PathBuf>) -> Vec<Place> {
    let mut known = Vec::new();
    let mut places = Vec::new();
    for path in paths {
        if !path.is_file() || known.contains(&path) {
            continue;
        }
        let config = Config::read(&path).map_err(|error| format!("{error:#}"));
        places.push(Place { name: format!("`{}`", path.display()), config });
        known.push(path);
    }
    places
}

impl Config {
    fn read(file: &Path) -> Result<Self> {
        // Docker's oldest file is the list of hosts itself.
        let is_old = file.file_name().is_some_and(|name| name == ".dockercfg");
        Self::parse(&fs_err::read(file)?, is_old)
    }

    fn parse(text: &[u8], is_old: bool) -> Result<Self> {
        if text.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        if is_old {
            return Ok(Self { auths: serde_json::from_slice(text)?, ..Self::default() });
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// What it knows of the host, and where that is from.
    fn of(&self, host: &str, path: &str, place: &str) -> Result<Option<(RegistryAuth, String)>> {
        let helped = |helper: &str| format!("`docker-credential-{helper}`, which {place} names");
        // An empty name is what Docker Desktop leaves in a Linux beside Windows: no helper at all.
        let mut helpers = self.cred_helpers.iter().filter(|(_, helper)| !helper.is_empty());
        if let Some((name, helper)) = helpers.find(|(name, _)| names(name, host)) {
            return Ok(ask(helper, name)?.map(|auth| (auth, helped(helper))));
        }
        if let Some((name, entry)) = self.entry(host, path)
            && let Some(auth) =
                entry.read().with_context(|| format!("reading the credentials for `{name}` in {place}"))?
        {
            return Ok(Some((auth, place.to_owned())));
        }
        let Some(store) = self.creds_store.as_ref().filter(|store| !store.is_empty()) else { return Ok(None) };
        let name = if DOCKER_HUB.contains(&host) { "https://index.docker.io/v1/" } else { host };
        match ask(store, name) {
            Ok(said) => Ok(said.map(|auth| (auth, helped(store)))),
            // Docker keeps the store for every registry, most of which need nothing.
            Err(error) => {
                log::warn!("going on without the credentials for {host} of {}: {error:#}", helped(store));
                Ok(None)
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
        let all = self.auths.iter().filter_map(|(key, entry)| Some((fits(key)?, key, entry)));
        all.max_by_key(|(length, ..)| *length).map(|(_, key, entry)| (key.as_str(), entry))
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
        let bytes = BASE64.decode(self.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) = bytes
            .as_deref()
            .and_then(|text| text.split_once(':'))
            .context("`auth` is not the base64 of `user:password`\nhint: log in again")?;
        // `echo user:password | base64` leaves a line's end behind it.
        let password = password.trim_end_matches(['\0', '\n', '\r']);
        Ok(Some(RegistryAuth::Basic(user.to_owned(), password.to_owned())))
    }
}

/// A key without the scheme and the version of the interface that old programs wrote.
fn bare(key: &str) -> &str {
    let key = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    key.trim_end_matches("/v1").trim_end_matches("/v2")
}

/// Whether a key means that host. The port of HTTPS need not be said.
fn names(key: &str, host: &str) -> bool {
    let plain = |host: &str| host.strip_suffix(":443").unwrap_or(host).to_ascii_lowercase();
    let (key, host) = (plain(bare(key)), plain(host));
    key == host || (DOCKER_HUB.contains(&&*key) && DOCKER_HUB.contains(&&*host))
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

    use super::{Credentials, User, files};

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
        let of = |host, path| credentials.of(host, path).expect("readable").auth;
        assert_eq!(of("quay.io", "app"), basic("a", "b"));
        assert_eq!(of("quay.io", "org/app"), basic("org", "secret:with:colons"));
        assert_eq!(of("quay.io", "organisation/app"), basic("a", "b"));
        assert_eq!(of("docker.io", "library/nginx"), basic("hub", "x"));
        assert_eq!(of("plain.example:5000", "a"), basic("u", "p"));
        assert_eq!(of("plain.example", "a"), RegistryAuth::Anonymous);
    }

    /// As people and their tools write them.
    #[test]
    fn files_of_every_tool_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let of = |text: &str, host: &str| config(dir.path(), text).of(host, "x").expect("readable").auth;
        // The texts are `ab:cde`, `a:bb` without the end of its base64, and `a:b` with the end of a line.
        for (text, host, expected) in [
            (r#"{"auths": {"quay.io": {"auth": "YWI6Y2Rl"}}}"#, "quay.io", basic("ab", "cde")),
            (r#"{"auths": {"quay.io": {"auth": "YTpiYg"}}}"#, "quay.io", basic("a", "bb")),
            (r#"{"auths": {"quay.io": {"auth": "YTpiCg=="}}}"#, "quay.io", basic("a", "b")),
            (r#"{"auths": {"Registry.Site:443": {"auth": "YTpi"}}}"#, "registry.site", basic("a", "b")),
            (r#"{"auths": {"registry.site": {"auth": "YTpi"}}}"#, "registry.site:443", basic("a", "b")),
            (
                r#"{"auths": {"quay.io": {"auth": "YTpi"}}, "credsStore": "", "credHelpers": null}"#,
                "quay.io",
                basic("a", "b"),
            ),
            (r#"{"auths": {"quay.io": {"auth": "YTpi"}}, "credHelpers": {"quay.io": ""}}"#, "quay.io", basic("a", "b")),
            (r#"{"auths": null, "credsStore": ""}"#, "quay.io", RegistryAuth::Anonymous),
        ] {
            assert_eq!(of(text, host), expected, "{text}");
        }
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

    /// A user whose folders all lie in `dir`.
    fn user(dir: &Path) -> User {
        User {
            runtime: Some(dir.join("run")),
            config: None,
            home: Some(dir.join("home")),
            docker: None,
            named: None,
            uid: 4_000_000_000,
        }
    }

    fn write(dir: &Path, name: &str, host: &str, auth: &str) {
        let file = dir.join(name);
        fs_err::create_dir_all(file.parent().expect("a folder")).expect("made");
        let entry = format!(r#"{{"{host}": {{"auth": "{auth}"}}}}"#);
        let text = if name.ends_with(".dockercfg") { entry } else { format!(r#"{{"auths": {entry}}}"#) };
        fs_err::write(file, text).expect("written");
    }

    #[test]
    fn each_host_is_taken_from_the_place_that_knows_it() {
        let dir = tempfile::tempdir().expect("a folder");
        // The texts are `a:b` and `hub:x`.
        write(dir.path(), "run/containers/auth.json", "quay.io", "YTpi");
        write(dir.path(), "home/.config/containers/auth.json", "quay.io", "aHViOng=");
        write(dir.path(), "home/.docker/config.json", "docker.io", "aHViOng=");
        write(dir.path(), "home/.dockercfg", "https://old.example/v1/", "YTpi");
        let credentials = Credentials { places: files(user(dir.path()).usual()) };
        let of = |host| credentials.of(host, "x").expect("readable");
        assert_eq!(of("quay.io").auth, basic("a", "b"));
        assert_eq!(of("docker.io").auth, basic("hub", "x"));
        assert_eq!(of("old.example").auth, basic("a", "b"));
        assert_eq!(of("ghcr.io").auth, RegistryAuth::Anonymous);
        let hint = of("quay.io").hint();
        assert!(hint.contains("run/containers/auth.json`: log in to `quay.io` again"), "{hint}");
        let hint = of("ghcr.io").hint();
        assert!(hint.contains("`docker login ghcr.io` or `podman login ghcr.io`"), "{hint}");
        let named = User { docker: Some(dir.path().join("d")), named: Some(dir.path().join("n")), ..user(dir.path()) };
        assert_eq!(named.named(), [dir.path().join("n"), dir.path().join("d/config.json")]);
        let root = User { runtime: None, uid: 0, ..user(dir.path()) };
        assert!(root.usual().contains(&"/run/containers/0/auth.json".into()), "root has no runtime folder of its own");
    }

    #[test]
    fn a_place_that_cannot_be_read_matters_only_to_hosts_that_no_other_knows() {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), "run/containers/auth.json", "quay.io", "YTpi");
        fs_err::create_dir_all(dir.path().join("home/.docker")).expect("made");
        fs_err::write(dir.path().join("home/.docker/config.json"), "{").expect("written");
        let credentials = Credentials { places: files(user(dir.path()).usual()) };
        assert_eq!(credentials.of("quay.io", "x").expect("known").auth, basic("a", "b"));
        let error = credentials.of("ghcr.io", "x").expect_err("it may be there").to_string();
        assert!(error.contains(".docker/config.json`") && error.contains("hint: mend it"), "{error}");
        fs_err::write(dir.path().join("home/.docker/config.json"), "\n").expect("written");
        let credentials = Credentials { places: files(user(dir.path()).usual()) };
        assert_eq!(credentials.of("ghcr.io", "x").expect("nothing").auth, RegistryAuth::Anonymous);
    }
}
