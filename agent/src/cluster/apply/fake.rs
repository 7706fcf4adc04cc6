//! A cluster in memory that knows a few kinds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::super::api::ApiError;
use super::ObjectApi;

/// Objects by path.
#[derive(Debug, Default)]
pub(super) struct FakeCluster(Mutex<BTreeMap<String, Value>>);

impl FakeCluster {
    pub(super) fn has(&self, path: &str) -> bool {
        self.lock().contains_key(path)
    }

    pub(super) fn remove(&self, path: &str) {
        self.lock().remove(path);
    }

    pub(super) fn set_status(&self, path: &str, status: Value) {
        self.lock().get_mut(path).expect("an object")["status"] = status;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectApi for FakeCluster {
    async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        let kinds: &[(&str, &str)] = match path {
            "/api/v1" => &[("configmaps", "ConfigMap"), ("persistentvolumeclaims", "PersistentVolumeClaim")],
            "/apis/batch/v1" => &[("jobs", "Job")],
            _ => return Ok(self.lock().get(path).cloned()),
        };
        let kind = |(name, kind): &(&str, &str)| json!({"name": name, "kind": kind, "namespaced": true});
        Ok(Some(json!({"resources": kinds.iter().map(kind).collect::<Vec<_>>()})))
    }

    async fn apply(&self, path: &str, object: &Value, _manager: &str, _force: bool) -> Result<Value, ApiError> {
        self.lock().insert(path.to_owned(), object.clone());
        Ok(object.clone())
    }

    async fn delete(&self, path: &str) -> Result<(), ApiError> {
        let path = path.split('?').next().unwrap_or(path);
        self.lock().remove(path);
        Ok(())
    }
}
