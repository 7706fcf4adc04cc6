//! Registry and content of a box without the box, for real clients: `distribution`, containerd, apt, curl.
//!
//! ```text
//! cargo run -p foothold-agent --example site -- RELEASE.json [DISTRIBUTION]
//! ```
//! Serves the images and files of the release on ports 5000 and 6180. Everything is where it is on a box: the store below
//! `/run/foothold/medium`, uploads below `/var/lib/foothold`; so it wants name spaces of its own (`unshare --mount --net`)
//! with file systems there. `DISTRIBUTION` is the registry's program; without it, it is expected to be started by others.

#![expect(clippy::print_stdout, reason = "it says when it is there")]
#![expect(clippy::disallowed_methods, reason = "it stands in for the kubelet that starts the registry")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use agent_api::boot::{LAYERS, MEDIUM};
use agent_api::ports;
use agent_api::release::Release;
use agent_api::site::Access;
use anyhow::{Context, Result};
use foothold_agent::content::Carried;
use foothold_agent::content::server::Content;
use foothold_agent::door::{self, Gate};
use foothold_agent::events::Bus;
use foothold_agent::registry::{Front, pod};
use foothold_agent::{http, pulls};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The box's access token.
const TOKEN: &str = "site";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let release = arguments.next().context("usage: site RELEASE.json [DISTRIBUTION]")?;
    let release: Release = serde_json::from_slice(&fs_err::read(release)?)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(&release, arguments.next()))
}

async fn serve(release: &Release, distribution: Option<String>) -> Result<()> {
    let (bus, stop, mut tasks) = (Bus::in_memory(), CancellationToken::new(), JoinSet::new());
    let gate = Arc::new(Gate::new(Path::new("/run/foothold/access")));
    gate.set_site(&Access { token_sha256: Some(hex::encode(Sha256::digest(TOKEN))), ..Access::default() });
    let recorder = pulls::start(&mut tasks, &bus, &stop);
    let front = Arc::new(Front::new(release, Path::new("/"), gate, recorder));
    let storage = front.storage().context("the release has no image of the registry")?;
    storage.prepare(front.catalog(), front.store(), "a-secret-of-this-run")?;
    let (resolver, _) = door::own_certificate(Path::new("/run/foothold/web"))?;
    let tls = door::tls(resolver)?;
    let anywhere = |port| [SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
    let carried = Arc::new(Carried::new(release, Path::new(MEDIUM), Path::new(LAYERS)));
    let content = Arc::new(Content::new(vec![carried], Path::new(MEDIUM), release.built));
    http::start(&mut tasks, &anywhere(ports::REGISTRY), front, tls.clone(), &stop);
    http::start(&mut tasks, &anywhere(ports::CONTENT), content, tls, &stop);
    let registry = distribution
        .map(|program| Command::new(program).args(["serve", pod::CONFIG]).env("OTEL_TRACES_EXPORTER", "none").spawn());
    let mut registry = registry.transpose()?;
    println!("registry on {}, content on {}, token `{TOKEN}`", ports::REGISTRY, ports::CONTENT);
    let mut news = bus.status();
    loop {
        tokio::select! {
            changed = news.changed() => changed?,
            ended = tasks.join_next() => break ended.context("no task")???,
            _ = tokio::signal::ctrl_c() => break,
        }
        if let Some(event) = news.borrow_and_update().recent.back() {
            println!("{}", serde_json::to_string(event)?);
        }
    }
    if let Some(registry) = &mut registry {
        registry.kill()?;
        registry.wait()?;
    }
    Ok(())
}
