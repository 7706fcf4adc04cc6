//! Objects applied to a cluster, any cluster: the box's own, or another one by its kubeconfig.
//!
//! ```text
//! text --declared--> [Declared] --> ObjectSet --bring--> ObjectApi: server-side apply, in order, hooks awaited
//!                                      |  └ inventory (ConfigMap of that cluster): what is not declared any more goes
//!                                      └----look------> health of each: statuses, what is missing
//! discovery: the path of an object of any kind
//! ```
//! `bring` and `look` go on at once: what is applied already is looked at while the rest waits for something. An object
//! whose apply fails holds nobody else up. What an earlier version declared and this one does not goes, unless it holds
//! what others may want ([`inventory::why_kept`]).
//!
//! Nothing here knows a phase, a ledger or an event: who calls says what is recorded, and tells what is waited for.

use std::future::Future;

use serde_json::Value;

use super::api::{Api, ApiError};

pub mod declared;
pub mod discovery;
#[cfg(test)]
mod fake;
pub mod health;
pub mod inventory;
mod set;

pub use set::{Brought, ObjectSet, Recorded};

/// The API server of a cluster, as much as applying needs of it.
pub trait ObjectApi: Sync {
    /// An object or list; nothing if it is not there.
    fn get(&self, path: &str) -> impl Future<Output = Result<Option<Value>, ApiError>> + Send;

    /// Server-side apply as `manager`; `force` takes fields over that another manager has. The object as it is now.
    fn apply(
        &self,
        path: &str,
        object: &Value,
        manager: &str,
        force: bool,
    ) -> impl Future<Output = Result<Value, ApiError>> + Send;

    /// Removes an object; one that is not there is as good.
    fn delete(&self, path: &str) -> impl Future<Output = Result<(), ApiError>> + Send;
}

impl ObjectApi for Api {
    async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        Self::get(self, path).await
    }

    async fn apply(&self, path: &str, object: &Value, manager: &str, force: bool) -> Result<Value, ApiError> {
        Self::apply(self, path, object, manager, force).await
    }

    async fn delete(&self, path: &str) -> Result<(), ApiError> {
        Self::delete(self, path).await
    }
}
