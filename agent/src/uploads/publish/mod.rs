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
enum Outcome {
    Done(Vec<String>),
    Never(String),
    Later(String),
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
        let mut later = false;
        for reference in self.uploads.take_forgotten() {
            if let Err(error) = registry.forget(&reference).await {
                log::warn!("`{reference}` stays in the registry: {error}");
            }
        }
        let of_containers = |record: &Record| record.key.kind == Kind::ContainerImages && record.digest.is_some();
        for record in self.uploads.all().into_iter().filter(of_containers) {
            if record.published != Published::Pending {
                continue;
            }
            // Nobody removes it while it is read.
            let Some(_hold) = self.uploads.hold_key(&record.key, "the push into the registry") else { continue };
            let (published, references, problem) = match self.publish(registry, &record).await {
                Outcome::Done(references) => (Published::Published, references, None),
                Outcome::Never(why) => (Published::Failed, record.references.clone(), Some(why)),
                Outcome::Later(why) => {
                    later = true;
                    (Published::Pending, record.references.clone(), Some(why))
                }
            };
            if let Err(error) = self.uploads.set_published(&record, published, references, problem) {
                log::error!("`{}`: {error}", record.key.name);
                later = true;
            }
        }
        later
    }

    async fn publish(&self, registry: &Registry, record: &Record) -> Outcome {
        let (archive, images) = match self.open(record.clone()).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(Unread::Later(why))) => return Outcome::Later(why),
            Ok(Err(Unread::Never(why))) => return Outcome::Never(why),
            Err(error) => return Outcome::Never(error.to_string()),
        };
        let own: Vec<Vec<String>> = images.iter().map(|image| image.names.clone()).collect();
        let named = match names::names(&record.key.owner, &record.description, &own) {
            Ok(named) => named,
            Err(why) => return Outcome::Never(why),
        };
        let mut references = Vec::new();
        for (image, repository, tag) in named {
            match registry.push(&archive, &images[image].manifest, &repository, &tag).await {
                Ok(()) => references.push(format!("{repository}:{tag}")),
                Err(error @ PushError::Silent(_)) => return Outcome::Later(error.to_string()),
                Err(error @ PushError::Refused { .. }) => return Outcome::Never(error.to_string()),
            }
        }
        // Names that a changed description no longer gives.
        for old in record.references.iter().filter(|old| !references.contains(old)) {
            if let Err(error) = registry.forget(old).await {
                log::warn!("`{old}` stays in the registry: {error}");
            }
        }
        Outcome::Done(references)
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

fn problem_of(record: Record) -> Option<(String, String)> {
    let super::UploadKey { kind, owner, cluster, name } = record.key;
    Some((format!("{kind}/{owner}/{cluster}/{name}"), record.problem?))
}

fn hex_of(bytes: &[u8]) -> String {
    Digest::of(bytes).hex().to_owned()
}

#[cfg(test)]
mod tests {
    use agent_api::bpa::Kind;

    use super::{Unread, attempt};
    use crate::uploads::{Announced, UploadKey, UploadLimits, Uploads};

    #[test]
    fn what_ended_the_box_three_times_is_not_read_a_fourth_time() {
        let dir = tempfile::tempdir().expect("a folder");
        let limits =
            || UploadLimits { percent: Kind::ALL.map(|kind| (kind, 100)).into(), reserve_percent: 0, images: 10 };
        let uploads = Uploads::open(dir.path(), limits()).expect("a store");
        let key = UploadKey::new(Kind::ContainerImages, "alpha", "edge", "a.tar").expect("a name");
        uploads.create(key.clone(), Announced { length: 1, ..Announced::default() }).expect("created");
        let mut writer = uploads.begin(&key, 0, Some(1)).expect("a writer");
        writer.write(b"x").expect("written");
        let record = writer.end().expect("whole");
        for _ in 0..5 {
            assert_eq!(attempt(&uploads, &record, |_| Ok(1)), Ok(1), "what ends well is not counted");
        }
        for _ in 0..3 {
            // The box goes down while it is read: nothing after that line happens.
            let uploads = Uploads::open(dir.path(), limits()).expect("a store");
            uploads.begin_reading(&record).expect("noted");
        }
        let uploads = Uploads::open(dir.path(), limits()).expect("a store");
        let refused = attempt(&uploads, &record, |_| -> Result<(), Unread> { panic!("it is read") });
        assert!(matches!(&refused, Err(Unread::Never(told)) if told.contains("read 3 times")), "{refused:?}");
    }
}
