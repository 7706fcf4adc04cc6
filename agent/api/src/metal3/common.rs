//! What several kinds share: references, taints, fields that may be `null`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use crate::meta::{Condition, ConditionStatus, Time};

/// A field that the original controller writes as `null` when it has nothing to say: an absent field, `null` and an
/// empty list are three things, and come back as what they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nullable<T>(pub Option<T>);

/// Tells `null` from an absent field.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Nullable<T>>, D::Error> {
    Option::<T>::deserialize(from).map(|value| Some(Nullable(value)))
}

/// What a nullable list holds: nothing when it is absent or `null`.
pub fn items<T>(list: Option<&Nullable<Vec<T>>>) -> &[T] {
    list.and_then(|list| list.0.as_deref()).unwrap_or_default()
}

/// A Secret by name, and by namespace when that may differ (`core/v1.SecretReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Any object of the cluster (`core/v1.ObjectReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectReference {
    /// API group and version of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Version of the object that is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Part of the object that is meant, such as `spec.containers{name}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
}

impl ObjectReference {
    /// A reference to the object of that kind, namespace and name.
    pub fn of(api_version: &str, kind: &str, namespace: String, name: String) -> Self {
        Self {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(namespace),
            name: Some(name),
            ..Self::default()
        }
    }

    /// Namespace and name of the object, if it is one of that kind, in whatever version of the group.
    pub fn names(&self, api_version: &str, kind: &str) -> Option<(&str, &str)> {
        fn group(version: &str) -> Option<&str> {
            version.split('/').next()
        }
        let same =
            self.kind.as_deref() == Some(kind) && self.api_version.as_deref().and_then(group) == group(api_version);
        if same { Some((self.namespace.as_deref()?, self.name.as_deref()?)) } else { None }
    }
}

/// An object by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// A taint of the node that the host becomes (`core/v1.Taint`). Never acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}
