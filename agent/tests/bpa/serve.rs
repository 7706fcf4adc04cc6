//! The server as a process of its own: this program again, asked for one "test".
//!
//! Uploads lie in `DIR/uploads`, the authority to trust in `DIR/web/ca.crt`; the address is in `DIR/address` once it
//! listens. Archives of images are read when `DIR/registry` has the address of a registry.

use std::path::Path;
use std::sync::Arc;

use agent_api::bpa::Kind;
use agent_api::site::{Access, Site};
use anyhow::Context;
use clap::Parser as _;
use foothold_agent::door::{Gate, own_certificate};
use foothold_agent::events::Bus;
use foothold_agent::rest;
use foothold_agent::rest::uploads::Options;
use foothold_agent::uploads::publish::{ReadUpload, Reader, Registry};
use foothold_agent::uploads::{UploadLimits, Uploads, publish};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::server::TOKEN;

/// Arguments that make this program the server.
pub const ARGUMENTS: [&str; 4] = ["--ignored", "--exact", "--nocapture", "serve::the_server"];
/// Folder of the server.
pub const FOLDER: &str = "FOOTHOLD_TEST_BPA_DIR";

#[test]
#[ignore = "it is the server of the other tests, which start it"]
fn the_server() {
    let Some(dir) = std::env::var_os(FOLDER) else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    // As the daemon's.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(serve(Path::new(&dir))).expect("served until it was killed");
}

#[test]
#[ignore = "it is what reads uploads for the server, which starts it"]
fn the_reader() {
    let mut words = std::env::args().skip_while(|word| word != "serve::the_reader").peekable();
    if words.peek().is_some() {
        ReadUpload::parse_from(words).run().expect("told");
        std::process::exit(0);
    }
}

fn reader() -> anyhow::Result<Reader> {
    let exe = std::env::current_exe()?.display().to_string();
    let words = [&exe, "--ignored", "--exact", "--nocapture", "--test-threads=1", "serve::the_reader"];
    Ok(Reader::new(words.map(str::to_owned).to_vec()))
}

async fn serve(dir: &Path) -> anyhow::Result<()> {
    let access = Access { token_sha256: Some(hex::encode(Sha256::digest(TOKEN))), ..Access::default() };
    let gate = Arc::new(Gate::new(&dir.join("access")));
    gate.set_site(&access);
    let limits = UploadLimits { percent: Kind::ALL.map(|kind| (kind, 100)).into(), reserve_percent: 0, images: 10_000 };
    let uploads = Uploads::open(&dir.join("uploads"), limits.clone())?;
    let (certificate, _) = own_certificate(&dir.join("web"))?;
    // Lives as long as the server: Site does not change.
    let site = watch::Sender::new(Some(Arc::new(Site { access, ..Site::default() })));
    let listen = vec!["127.0.0.1:0".parse()?];
    let options = Options { listen, gate, site: site.subscribe(), certificate, uploads: uploads.clone(), limits };
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let addresses = rest::uploads::start(&mut tasks, options, &stop)?;
    let registry = fs_err::read_to_string(dir.join("registry")).ok();
    let registry = registry.map(|url| anyhow::Ok(Registry::new(url.parse()?, None)?)).transpose()?;
    publish::start(&mut tasks, uploads, reader()?, registry, Bus::in_memory(), &stop);
    let address = addresses.first().context("an address that is free")?;
    fs_err::write(dir.join("address.new"), address.to_string())?;
    fs_err::rename(dir.join("address.new"), dir.join("address"))?;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
