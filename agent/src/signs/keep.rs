//! The box's table as a file: the agent writes it, the controller in its pod reads it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::Table;
use crate::content::fetches::Fetches;
use crate::host::files;

/// Folder of [`FILE`], forgotten at power-off.
pub const RUN: &str = "/run/foothold/hosts";
/// The table, in [`RUN`].
pub const FILE: &str = "signs.json";
/// Between two looks. The controller looks each ten seconds.
const EVERY: Duration = Duration::from_secs(5);

/// Keeps the file of the box at `root` in step, until told to stop.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, root: PathBuf, fetches: Fetches, stop: &CancellationToken) {
    let keep = async move {
        let mut missed = None;
        loop {
            let (root, fetches) = (root.clone(), fetches.clone());
            let written = spawn_blocking(move || write(&root, &fetches)).await;
            let written = written.map_err(std::io::Error::other).and_then(|written| written);
            let why = written.err().map(|error| error.to_string());
            if let Some(why) = why.as_ref().filter(|why| missed.as_ref() != Some(*why)) {
                log::warn!("the controller is not told of signs of life: {why}");
            }
            missed = why;
            tokio::time::sleep(EVERY).await;
        }
    };
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(keep).await;
        Ok(())
    });
}

fn write(root: &Path, fetches: &Fetches) -> std::io::Result<()> {
    let table = Table::gather(root, fetches, Timestamp::now()).of_servers();
    let text = serde_json::to_string(&table)? + "\n";
    let path = root.join(RUN.trim_start_matches('/')).join(FILE);
    files::write(&path, text.as_bytes(), files::PUBLIC).map(drop)
}

/// Reads the file, each time that it has changed.
#[derive(Debug, Default)]
pub struct Reader {
    path: Option<PathBuf>,
    read: Mutex<(Option<SystemTime>, Option<Arc<Table>>)>,
}

impl Reader {
    /// Of the file at `path`; of none, where nobody writes one.
    pub fn of(path: Option<PathBuf>) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// The table; none where there is no file. One that cannot be read leaves what was read before.
    pub fn table(&self) -> Option<Arc<Table>> {
        let path = self.path.as_ref()?;
        let changed = fs_err::metadata(path).and_then(|found| found.modified()).ok();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_none() {
            *read = (None, None);
        } else if changed != read.0 {
            match fs_err::read(path).and_then(|bytes| Ok(serde_json::from_slice::<Table>(&bytes)?)) {
                Ok(table) => read.1 = Some(Arc::new(table)),
                Err(error) => log::warn!("`{}`: {error}", path.display()),
            }
            read.0 = changed;
        }
        read.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{FILE, RUN, Reader, write};
    use crate::content::fetches::Fetches;

    #[test]
    fn what_the_agent_writes_the_controller_reads() {
        assert_eq!(Reader::of(None).table(), None);
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(RUN.trim_start_matches('/')).join(FILE);
        let reader = Reader::of(Some(path.clone()));
        assert_eq!(reader.table(), None, "nobody has written yet");
        let fetches = Fetches::default();
        fetches.began([172, 22, 0, 50].into(), "/netboot/a.initramfs", Timestamp::UNIX_EPOCH);
        write(dir.path(), &fetches).expect("written");
        assert_eq!(reader.table().expect("a table").http, fetches.all());
        fs_err::write(&path, "{").expect("written");
        assert_eq!(reader.table().expect("what was read before").http, fetches.all());
        fs_err::remove_file(&path).expect("removed");
        assert_eq!(reader.table(), None);
    }
}
