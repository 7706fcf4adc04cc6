//! What the box takes of memory and of DATA, now and at most: for the proof.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::proof;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::events::Bus;
use crate::vitals::memory_of;

/// How often usage is measured until the box is ready. It costs two system calls and a small file.
const EVERY: Duration = Duration::from_millis(500);

/// Measures, and remembers the highest values. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Usage {
    root: PathBuf,
    peak: Arc<Mutex<proof::Usage>>,
}

impl Usage {
    /// Of the box below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), peak: Arc::default() }
    }

    /// What is in use now, and the highest values since the first measurement.
    pub fn look(&self) -> proof::Usage {
        let meminfo = fs_err::read_to_string(self.root.join("proc/meminfo")).unwrap_or_default();
        let (used, total) = rustix::fs::statvfs(self.root.join("var")).map_or((0, 0), |disk| {
            let mib = |blocks: u64| (blocks * disk.f_frsize) >> 20;
            (mib(disk.f_blocks - disk.f_bfree), mib(disk.f_blocks))
        });
        self.keep(memory_of(&meminfo).used_mib, used, total)
    }

    fn keep(&self, memory: u64, data: u64, total: u64) -> proof::Usage {
        let mut peak = self.peak.lock().unwrap_or_else(PoisonError::into_inner);
        *peak = proof::Usage {
            memory_used_mib: memory,
            memory_peak_mib: peak.memory_peak_mib.max(memory),
            data_used_mib: data,
            data_peak_mib: peak.data_peak_mib.max(data),
            data_total_mib: total,
        };
        *peak
    }
}

/// Measures again and again until the box is ready.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, usage: Usage, bus: &Bus, stop: &CancellationToken) {
    let (bus, stop) = (bus.clone(), stop.clone());
    tasks.spawn(async move {
        let look = async {
            while !bus.now().ready {
                usage.look();
                tokio::time::sleep(EVERY).await;
            }
        };
        stop.run_until_cancelled(look).await;
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::Usage;

    #[test]
    fn the_most_is_remembered() {
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::create_dir_all(dir.path().join("proc")).expect("a folder");
        fs_err::create_dir_all(dir.path().join("var")).expect("a folder");
        let usage = Usage::new(dir.path());
        usage.keep(900, 40, 1000);
        usage.keep(1200, 30, 1000);
        fs_err::write(dir.path().join("proc/meminfo"), "MemTotal: 2048000 kB\nMemAvailable: 1024000 kB\n")
            .expect("written");
        let found = usage.look();
        assert_eq!((found.memory_used_mib, found.memory_peak_mib), (1000, 1200));
        assert!(found.data_peak_mib >= 40 && found.data_total_mib > 0);
    }
}
