//! What the registry's and the BPA's uploads take of DATA, taken down for the status from time to time.

use std::sync::Arc;
use std::time::Duration;

use agent_api::rest::Share;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::registry::Storage;
use crate::uploads::Uploads;
use crate::vitals::Vitals;

/// Pause between two looks: folders are read.
const LOOK: Duration = Duration::from_secs(30);

/// Takes it down until told to stop. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    vitals: Vitals,
    registry: Option<Arc<Storage>>,
    uploads: Option<Uploads>,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    tasks.spawn(async move {
        let follow = async {
            loop {
                let (vitals, registry, uploads) = (vitals.clone(), registry.clone(), uploads.clone());
                let looked = spawn_blocking(move || look(&vitals, registry.as_deref(), uploads.as_ref())).await;
                if let Err(error) = looked {
                    log::error!("what uploads take is not known: {error}");
                }
                sleep(LOOK).await;
            }
        };
        stop.run_until_cancelled(follow).await;
        Ok(())
    });
}

fn look(vitals: &Vitals, registry: Option<&Storage>, uploads: Option<&Uploads>) {
    if let Some(registry) = registry.filter(|registry| registry.limit().is_some()) {
        vitals.set_share("registry", registry.share());
    }
    let Some(Ok(storage)) = uploads.map(Uploads::storage) else { return };
    for (kind, taken) in storage.kinds {
        let (used_bytes, limit_bytes) = (taken.used_bytes, taken.quota_bytes);
        let full = (used_bytes >= limit_bytes).then(|| format!("uploads of {kind} have all of their share"));
        vitals.set_share(&kind.to_string(), Share { used_bytes, limit_bytes, full });
    }
}
