//! What every controller shares, whatever its kind.
//!
//! ```text
//! turns       queue and turn of a kind: each object once, as it is now, again later
//! changes     which objects of a kind changed, for several controllers that have one watch of it
//! failures    what failed how often, and how long it rests
//! conditions  one merger of status conditions
//! events      events of Kubernetes; a kind's reasons are an enum of its own
//! objects     get, apply, merge, status, finalizers; conflicts are told apart from failures
//! jobs        Jobs that do an operator's work: how they ended, what holds them up, what they wrote
//! backoff     pauses after errors, spread
//! metrics     counters and durations, in Prometheus' text
//! serve       /metrics, /healthz, /readyz
//! templates   templates of Go that users write
//! webhook     objects of a group refused before they are stored
//! registration  which webhook the API server asks: owned, renewed, removed
//! command     settings from the environment, the cluster's client, the end by a signal
//! ```

pub mod backoff;
pub mod changes;
pub mod command;
pub mod conditions;
pub mod events;
pub mod failures;
pub mod jobs;
pub mod metrics;
pub mod objects;
pub mod registration;
pub mod serve;
pub mod templates;
pub mod turns;
pub mod webhook;

pub use changes::Changes;
pub use conditions::NewCondition;
pub use events::{Event, Reason};
pub use failures::Failures;
pub use objects::{Key, Object, ObjectError, Objects, doing, text_of, told_key};
pub use turns::{Base, Next, Queue, Turn};
