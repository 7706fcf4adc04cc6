//! What arrived is used: containers' archives go into the registry, packages into the apt repository.
//!
//! ```text
//! Uploads ─changes─► run ─┬─ Reader ─► Apt::refresh ─► Uploads::set_made     (files of the repository)
//!                         ├─ Reader ─► names ─► Registry::push               (one archive at a time)
//!                         └─ collect, each hour
//! ```
//! A process of its own reads the bytes. That it begins is on the disk before it does: what ended the box three times is not
//! read a fourth time.
//!
//! How it went is in the image's record, and a failure is told on the bus. What may be otherwise later is tried again.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_api::bpa::{Kind, Published};
use agent_api::events::{Event, Phase, State};
use agent_api::release::Digest;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Record, Uploads};
use crate::events::{Bus, uptime};

mod apt;
mod archive;
mod deb;
mod layout;
mod names;
mod reader;
mod registry;

use archive::{Archive, Image};
use reader::Unread;
pub use reader::{ReadUpload, Reader};
use registry::PushError;
pub use registry::Registry;

/// Step of phase `content` under which it is told.
const STEP: &str = "publish";
/// What failed and may be otherwise later is tried again after this; it doubles up to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));
/// How often garbage is looked for.
const COLLECT: Duration = Duration::from_secs(3600);
/// Readings of one upload that came to no end before it is given up.
const MOST_ATTEMPTS: u32 = 3;

/// Publishes until told to stop. Without a registry archives stay pending. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    uploads: Uploads,
    reader: Reader,
    registry: Option<Registry>,
    bus: Bus,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    let publisher = Publisher { uploads, reader, registry, bus, told: BTreeSet::new() };
    tasks.spawn(async move {
        stop.run_until_cancelled(publisher.run()).await;
        Ok(())
    });
}

/// How publishing an image ended.
struct Outcome {
    published: Published,
    /// Names that the registry has of it now.
    references: Vec<String>,
    problem: Option<String>,
}

impl Outcome {
    fn never(references: &[String], why: impl Into<String>) -> Self {
        Self { published: Published::Failed, references: references.to_vec(), problem: Some(why.into()) }
    }

    fn later(references: &[String], why: impl Into<String>) -> Self {
        Self { published: Published::Pending, ..Self::never(references, why) }
    }
}

struct Publisher {
    uploads: Uploads,
    reader: Reader,
    registry: Option<Registry>,
    bus: Bus,
    /// Failures that were told: paths in the index.
    told: BTreeSet<String>,
}

impl Publisher {
    async fn run(mut self) {
        let mut changes = self.uploads.changes();
        let mut apt = Some(apt::Apt::default());
        let mut pause = AGAIN.0;
        let mut collected = Instant::now();
        loop {
            changes.mark_unchanged();
            let mut later = self.packages(&mut apt).await;
            later |= self.archives().await;
            self.tell();
            if collected.elapsed() >= COLLECT {
                self.collect().await;
                collected = Instant::now();
            }
            let wait = if later { pause } else { COLLECT };
            let news = timeout(wait, changes.changed()).await;
            if matches!(news, Ok(Err(_))) {
                return;
            }
            pause = if later && news.is_err() { (pause * 2).min(AGAIN.1) } else { AGAIN.0 };
        }
    }

    /// Brings the apt repository up to date; tells whether it must be tried again.
    async fn packages(&self, apt: &mut Option<apt::Apt>) -> bool {
        let mut working = apt.take().unwrap_or_default();
        let (uploads, reader) = (self.uploads.clone(), self.reader.clone());
        let refreshed = spawn_blocking(move || {
            let result = working.refresh(&uploads, &reader, SystemTime::now());
            (working, result)
        });
        match refreshed.await {
            Ok((done, result)) => {
                *apt = Some(done);
                if let Err(error) = &result {
                    self.fail(&format!("the apt repository of uploads is as it was before: {error:#}"));
                }
                result.unwrap_or(true)
            }
            Err(error) => {
                log::error!("the apt repository of uploads: {error}");
                true
            }
        }
    }

    /// Pushes what is pending and forgets what was removed; tells whether something must be tried again.
    async fn archives(&self) -> bool {
        let Some(registry) = &self.registry else { return false };
        // Before what may have the same name, so that nothing of it stays without a name.
        let mut later = self.forget(registry).await;
        let of_containers = |record: &Record| record.key.kind == Kind::ContainerImages && record.digest.is_some();
        for record in self.uploads.all().into_iter().filter(of_containers) {
            if record.published != Published::Pending {
                continue;
            }
            // Nobody removes it while it is read.
            let Some(_hold) = self.uploads.hold_key(&record.key, "the push into the registry") else { continue };
            let Outcome { published, references, problem } = self.publish(registry, &record).await;
            later |= published == Published::Pending;
            if let Err(error) = self.uploads.set_published(&record, published, references, problem) {
                log::error!("`{}`: {error}", record.key.name);
                later = true;
            }
        }
        later | self.forget(registry).await
    }

    /// Lets the registry forget names that no image has any more; tells whether one is left.
    async fn forget(&self, registry: &Registry) -> bool {
        let mut later = false;
        for reference in self.uploads.to_forget() {
            match registry.forget(&reference).await {
                Err(error @ PushError::Silent(_)) => {
                    log::warn!("`{reference}` is still in the registry: {error}");
                    later = true;
                    continue;
                }
                Err(error @ PushError::Refused { .. }) => log::warn!("`{reference}` stays in the registry: {error}"),
                Ok(()) => {}
            }
            if let Err(error) = self.uploads.forgot(&reference) {
                log::error!("keeping what the registry forgot: {error}");
                later = true;
            }
        }
        later
    }

    async fn publish(&self, registry: &Registry, record: &Record) -> Outcome {
        let before = &record.references;
        let (archive, images) = match self.open(record.clone()).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(Unread::Later(why))) => return Outcome::later(before, why),
            Ok(Err(Unread::Never(why))) => return Outcome::never(before, why),
            Err(error) => return Outcome::never(before, error.to_string()),
        };
        let own: Vec<Vec<String>> = images.iter().map(|image| image.names.clone()).collect();
        let named = match names::names(&record.key.owner, &record.description, &own) {
            Ok(named) => named,
            Err(why) => return Outcome::never(before, why),
        };
        let mut references = Vec::new();
        for (image, repository, tag) in named {
            let reference = format!("{repository}:{tag}");
            if let Some(holder) = self.uploads.holder(&reference, record) {
                return Outcome::never(&super::all_of(before, references), is_of_another(&reference, &holder));
            }
            let pushed = registry.push(&archive, &images[image].manifest, &repository, &tag).await;
            match pushed {
                Ok(()) => references.push(reference),
                Err(error @ PushError::Silent(_)) => {
                    // It may have arrived all the same.
                    references.push(reference);
                    return Outcome::later(&super::all_of(before, references), error.to_string());
                }
                Err(error @ PushError::Refused { .. }) => {
                    return Outcome::never(&super::all_of(before, references), error.to_string());
                }
            }
        }
        Outcome { published: Published::Published, references, problem: None }
    }

    async fn open(&self, record: Record) -> Result<Result<(Arc<Archive>, Vec<Image>), Unread>, tokio::task::JoinError> {
        let (uploads, reader) = (self.uploads.clone(), self.reader.clone());
        spawn_blocking(move || {
            let storage = uploads.storage().map_err(|error| Unread::Later(error.to_string()))?;
            let most = storage.free_bytes.saturating_sub(storage.reserve_bytes);
            let (archive, images) = attempt(&uploads, &record, |path| reader.images(path, most))?;
            Ok((Arc::new(archive), images))
        })
        .await
    }

    /// Tells new failures once, and that all is well when the last one is gone.
    fn tell(&mut self) {
        let problems: Vec<(String, String)> = self.uploads.all().into_iter().filter_map(problem_of).collect();
        let news: Vec<&(String, String)> = problems.iter().filter(|(image, _)| !self.told.contains(image)).collect();
        for (image, why) in news {
            self.fail(&format!("`{image}` is not published: {why}"));
        }
        if problems.is_empty() && !self.told.is_empty() {
            self.bus.done(Phase::Content, STEP);
        }
        self.told = problems.into_iter().map(|(image, _)| image).collect();
    }

    fn fail(&self, cause: &str) {
        let next = "GET the image on port 9015 for details; DELETE it, or PUT what is wrong about it";
        let event = Event::of_box(uptime(), Phase::Content, STEP, State::Failed).with("cause", cause);
        self.bus.emit(event.with("next", next).with("log", "journalctl -u foothold-agent").with("workload", true));
    }

    async fn collect(&self) {
        let uploads = self.uploads.clone();
        match spawn_blocking(move || uploads.collect(SystemTime::now())).await {
            Ok(Ok(collected)) if collected == super::Collected::default() => {}
            Ok(Ok(collected)) => {
                log::info!("{} files of uploads and {} bytes are free again", collected.files, collected.bytes);
            }
            Ok(Err(error)) => log::warn!("looking for garbage among uploads: {error}"),
            Err(error) => log::warn!("looking for garbage among uploads: {error}"),
        }
    }
}

/// Reads the bytes of an upload, having noted before that it begins.
fn attempt<T>(
    uploads: &Uploads,
    record: &Record,
    read: impl FnOnce(&std::path::Path) -> Result<T, Unread>,
) -> Result<T, Unread> {
    let later = |error: io::Error| Unread::Later(error.to_string());
    let path = uploads.blob(record).ok_or_else(|| Unread::Never("it has no bytes".to_owned()))?;
    let before = uploads.begin_reading(record).map_err(later)?;
    if before >= MOST_ATTEMPTS {
        let told = format!("it was read {before} times, and each time this agent or the box ended before it was done");
        return Err(Unread::Never(format!("{told}; hint: DELETE it")));
    }
    let found = read(&path);
    uploads.end_reading(record).map_err(later)?;
    found
}

fn is_of_another(reference: &str, holder: &super::UploadKey) -> String {
    let super::UploadKey { kind, owner, cluster, name } = holder;
    format!(
        "`{reference}` is the name of `{kind}/{owner}/{cluster}/{name}`, which has other bytes; \
         hint: PUT another `repo` or `tag`, or DELETE that one and PUT this one again"
    )
}

fn problem_of(record: Record) -> Option<(String, String)> {
    let super::UploadKey { kind, owner, cluster, name } = record.key;
    Some((format!("{kind}/{owner}/{cluster}/{name}"), record.problem?))
}

fn hex_of(bytes: &[u8]) -> String {
    Digest::of(bytes).hex().to_owned()
}

#[cfg(test)]
mod tests;
