//! Registries: manifests by tag or digest, and blobs that come on where they stopped.
//!
//! ```text
//! host --content.registries--> Endpoint (server, prefix, authorities) --credentials--> client, one a host
//! ```
//! Proxies are those of the environment.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::image::ImageName;
use agent_api::oci;
use agent_api::release::Digest;
use anyhow::{Context, Result, anyhow, ensure};
use fs_err::File;
use futures_util::Stream as _;
use oci_client::client::{BlobResponse, Certificate, CertificateEncoding, Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::{Reference, RegistryOperation};
use tokio::runtime::Runtime;

use super::credentials::{Credentials, Login};
use crate::config::{RegistryAccess, is_loopback};
use crate::lock::http::{Failed, patiently, persist};
use crate::lock::images::Piece;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(30);
/// No manifest is larger (OCI distribution specification: registries should take 4 MiB at least).
const MOST_MANIFEST: usize = 16 << 20;

/// Where the images of a host are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host and port that are connected to.
    server: String,
    /// Beginning of every repository there.
    prefix: String,
    /// Plain HTTP.
    plain: bool,
}

impl Endpoint {
    /// The endpoint of a host, from the definition's settings.
    pub fn of(host: &str, access: &RegistryAccess) -> Self {
        let Some(mirror) = &access.mirror else {
            // As Docker does: on loopback nobody listens, and few registries there have a certificate.
            let plain = is_loopback(host) && access.ca.is_none() && !access.insecure;
            return Self { server: host.to_owned(), prefix: String::new(), plain };
        };
        let (scheme, rest) = mirror.split_once("://").unwrap_or(("https", mirror));
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.strip_prefix("v2").map_or(path, |path| path.trim_start_matches('/'));
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        Self { server: server.to_owned(), prefix, plain: scheme == "http" }
    }

    fn repository(&self, name: &ImageName) -> String {
        format!("{}{}", self.prefix, name.path)
    }

    fn reference(&self, name: &ImageName, digest: Option<&Digest>) -> Reference {
        let (server, repository) = (self.server.clone(), self.repository(name));
        match digest.or(name.digest.as_ref()) {
            Some(digest) => Reference::with_digest(server, repository, digest.to_string()),
            None => Reference::with_tag(server, repository, name.tag.clone().unwrap_or_default()),
        }
    }
}

/// All registries of a definition. May be used by several threads.
pub struct Registries<'a> {
    settings: &'a BTreeMap<String, RegistryAccess>,
    credentials: Credentials,
    runtime: Runtime,
    clients: Mutex<BTreeMap<String, Arc<Registry>>>,
}

struct Registry {
    endpoint: Endpoint,
    client: Client,
}

impl<'a> Registries<'a> {
    /// The registries, reached as `settings` say.
    pub fn new(settings: &'a BTreeMap<String, RegistryAccess>, credentials: Credentials) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { settings, credentials, runtime, clients: Mutex::default() })
    }

    /// What errors call the place that an image of that host comes from.
    pub fn source(&self, name: &ImageName) -> String {
        let endpoint = Endpoint::of(&name.host, self.settings.get(&name.host).unwrap_or(&RegistryAccess::default()));
        let scheme = if endpoint.plain { "http" } else { "https" };
        format!("{scheme}://{}/{}", endpoint.server, endpoint.repository(name))
    }

    fn registry(&self, host: &str) -> Result<Arc<Registry>> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registry) = clients.get(host) {
            return Ok(Arc::clone(registry));
        }
        let nothing = RegistryAccess::default();
        let access = self.settings.get(host).unwrap_or(&nothing);
        let endpoint = Endpoint::of(host, access);
        let config = ClientConfig {
            protocol: if endpoint.plain { ClientProtocol::Http } else { ClientProtocol::Https },
            accept_invalid_certificates: access.insecure,
            extra_root_certificates: access.ca.as_deref().map(authorities).transpose()?.unwrap_or_default(),
            connect_timeout: Some(CONNECT),
            user_agent: concat!("foothold/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).with_context(|| format!("making a client of {host}"))?;
        let registry = Arc::new(Registry { endpoint, client });
        clients.insert(host.to_owned(), Arc::clone(&registry));
        Ok(registry)
    }

    fn login(&self, registry: &Registry, name: &ImageName) -> Result<Login> {
        self.credentials.of(&registry.endpoint.server, &registry.endpoint.repository(name))
    }

    /// The bytes of the index or manifest that `name` stands for, or of the one of that digest.
    pub fn manifest(&self, name: &ImageName, digest: Option<&Digest>) -> Result<Vec<u8>> {
        const ACCEPTED: [&str; 4] = [oci::INDEX, oci::MANIFEST, oci::DOCKER_LIST, oci::DOCKER_MANIFEST];
        let registry = self.registry(&name.host)?;
        let login = self.login(&registry, name)?;
        let reference = registry.endpoint.reference(name, digest);
        let bytes = persist(
            &reference.whole(),
            || Ok(0),
            || {
                self.runtime.block_on(async {
                    let ask = registry.client.auth(&reference, &login.auth, RegistryOperation::Pull);
                    patiently(ask).await?.map_err(|error| failed(error, &login))?;
                    let pull = registry.client.pull_manifest_raw(&reference, &login.auth, &ACCEPTED);
                    patiently(pull).await?.map_err(|error| failed(error, &login))
                })
            },
        );
        let (bytes, _) = bytes.with_context(|| match digest {
            Some(digest) => format!("fetching the manifest {digest} from {}", self.source(name)),
            None => format!("fetching the manifest from {}", self.source(name)),
        })?;
        ensure!(
            bytes.len() <= MOST_MANIFEST,
            "the manifest has {} bytes, at most {MOST_MANIFEST} are read",
            bytes.len()
        );
        Ok(bytes.to_vec())
    }

    /// Downloads a blob behind what is in `file` already. `on_bytes` is told how long the file is.
    pub fn blob(&self, name: &ImageName, piece: &Piece, file: &Path, on_bytes: &dyn Fn(u64)) -> Result<()> {
        let registry = self.registry(&name.host)?;
        let login = self.login(&registry, name)?;
        let reference = registry.endpoint.reference(name, None);
        let mut out = fs_err::OpenOptions::new().append(true).create(true).open(file)?;
        let size = || Ok(fs_err::metadata(file)?.len());
        let what = format!("{}@{}", reference.whole(), piece.digest);
        persist(&what, size, || self.runtime.block_on(registry.rest(&reference, &login, piece, &mut out, on_bytes)))?;
        Ok(out.sync_all()?)
    }
}

impl Registry {
    /// Asks for what `file` does not have yet.
    async fn rest(
        &self,
        reference: &Reference,
        login: &Login,
        piece: &Piece,
        file: &mut File,
        on_bytes: &dyn Fn(u64),
    ) -> Result<(), Failed> {
        let mut have = file.metadata()?.len();
        if have > piece.size {
            file.set_len(0)?;
            have = 0;
        }
        if have == piece.size {
            return Ok(());
        }
        self.client.store_auth_if_needed(reference.resolve_registry(), &login.auth).await;
        let digest = piece.digest.to_string();
        let ask = self.client.pull_blob_stream_partial(reference, digest.as_str(), have, None);
        let mut stream = match patiently(ask).await?.map_err(|error| failed(error, login))? {
            BlobResponse::Partial(stream) => stream,
            BlobResponse::Full(stream) => {
                file.set_len(0)?;
                have = 0;
                stream
            }
        };
        while have < piece.size {
            let next = std::future::poll_fn(|context| Pin::new(&mut stream).poll_next(context));
            let Some(bytes) = patiently(next).await? else { break };
            let bytes = bytes.map_err(|error| Failed::ForNow(error.into()))?;
            crate::host::cancel::check()?;
            file.write_all(&bytes)?;
            have += bytes.len() as u64;
            on_bytes(have);
        }
        if have < piece.size {
            return Err(Failed::ForNow(anyhow!("{have} of {} bytes came", piece.size)));
        }
        Ok(())
    }
}

/// Whether another attempt may do better, and what to say of this one.
fn failed(error: OciDistributionError, login: &Login) -> Failed {
    let login = || format!("\n{}", login.hint());
    match error {
        OciDistributionError::RequestError(error) if is_about_certificates(&error) => {
            Failed::ForGood(anyhow::Error::new(error.without_url()).context(
                "the server's certificate is not trusted\nhint: name its authority: `content.registries.<host>.ca`",
            ))
        }
        OciDistributionError::RequestError(error) => Failed::ForNow(error.without_url().into()),
        OciDistributionError::IoError(error) => Failed::ForNow(error.into()),
        OciDistributionError::ServerError { code, message, .. } => {
            let said = anyhow!("the server says {code} {}", message.lines().next().unwrap_or_default().trim());
            if code >= 500 || matches!(code, 408 | 416 | 429) { Failed::ForNow(said) } else { Failed::ForGood(said) }
        }
        OciDistributionError::RegistryError { envelope, .. } => {
            let busy = envelope.errors.iter().any(|error| error.code == OciErrorCode::Toomanyrequests);
            let denied = envelope.errors.iter().any(|error| error.code == OciErrorCode::Denied);
            let words: Vec<_> = envelope.errors.into_iter().map(|error| error.message).collect();
            let said =
                anyhow!("the registry says: {}{}", words.join("; "), if denied { login() } else { String::new() });
            if busy { Failed::ForNow(said) } else { Failed::ForGood(said) }
        }
        OciDistributionError::UnauthorizedError { .. } => Failed::ForGood(anyhow!("the registry says 401{}", login())),
        OciDistributionError::AuthenticationFailure(said) => {
            let said = said.lines().next().unwrap_or_default().trim();
            Failed::ForGood(anyhow!("the registry gives no token: {said}{}", login()))
        }
        error => Failed::ForGood(error.into()),
    }
}

fn is_about_certificates(error: &reqwest::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    std::iter::from_fn(|| {
        let this = cause?;
        cause = this.source();
        Some(this.to_string())
    })
    .any(|text| text.contains("certificate"))
}

/// The certificates of a PEM file.
fn authorities(file: &Path) -> Result<Vec<Certificate>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let text = fs_err::read_to_string(file)?;
    let all: Vec<_> = text
        .split(BEGIN)
        .skip(1)
        .map(|part| Certificate { encoding: CertificateEncoding::Pem, data: format!("{BEGIN}{part}").into_bytes() })
        .collect();
    ensure!(!all.is_empty(), "`{}` holds no certificate (PEM)", file.display());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::Endpoint;
    use crate::config::RegistryAccess;

    fn mirror(url: &str) -> RegistryAccess {
        RegistryAccess { mirror: Some(url.into()), ..RegistryAccess::default() }
    }

    #[test]
    fn images_are_asked_for_where_the_settings_say() {
        let name = "docker.io/nginx:1".parse().expect("a name");
        for (access, expected) in [
            (RegistryAccess::default(), "docker.io/library/nginx:1"),
            (mirror("https://m.example"), "m.example/library/nginx:1"),
            (mirror("http://127.0.0.1:5000/hub"), "127.0.0.1:5000/hub/library/nginx:1"),
            (mirror("https://m.example/v2/proxy/hub"), "m.example/proxy/hub/library/nginx:1"),
        ] {
            assert_eq!(Endpoint::of("docker.io", &access).reference(&name, None).whole(), expected);
        }
    }

    #[test]
    fn only_loopback_is_spoken_to_in_plain_text_without_being_told() {
        let nothing = RegistryAccess::default();
        for (host, plain) in
            [("quay.io", false), ("127.0.0.1:5000", true), ("localhost:5000", true), ("127.0.0.1.example", false)]
        {
            assert_eq!(Endpoint::of(host, &nothing).plain, plain, "{host}");
        }
        let with_ca = RegistryAccess { ca: Some("ca.pem".into()), ..nothing };
        assert!(!Endpoint::of("127.0.0.1:5000", &with_ca).plain);
        assert!(Endpoint::of("quay.io", &mirror("http://m.example")).plain);
    }
}
