//! Notes for the status, from time to time, how much of DATA is taken by what is kept for the site.

use std::sync::Arc;
use std::time::Duration;

use agent_api::rest::Share;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::vitals::Vitals;

/// Pause between two looks: folders are read.
const LOOK: Duration = Duration::from_secs(30);

/// Something that keeps files for the site on DATA.
pub trait Keeper: Send + Sync {
    /// What it takes, by kind. It reads folders, which may block.
    fn shares(&self) -> Vec<(String, Share)>;
}

/// Notes the shares of all keepers until `stop`. Needs a tokio runtime.
pub fn start(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    vitals: Vitals,
    keepers: Vec<Arc<dyn Keeper>>,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    tasks.spawn(async move {
        let follow = async {
            loop {
                let (vitals, keepers) = (vitals.clone(), keepers.clone());
                let looked = spawn_blocking(move || {
                    for (kind, share) in keepers.iter().flat_map(|keeper| keeper.shares()) {
                        vitals.set_share(&kind, share);
                    }
                });
                if let Err(error) = looked.await {
                    log::error!("what uploads take is not known: {error}");
                }
                sleep(LOOK).await;
            }
        };
        stop.run_until_cancelled(follow).await;
        Ok(())
    });
}
