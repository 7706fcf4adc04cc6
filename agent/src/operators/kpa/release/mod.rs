//! `Release`: a chart or manifests on a cluster.
//!
//! ```text
//! look    dependencies, the cluster's kubeconfig, values
//! decide  the plan for Helm, its digest, what to do next           (pure)
//! act     the Job, its Secret, its report
//! tell    status, conditions, events
//! ```

mod act;
mod controller;
mod decide;
mod look;
mod tell;

pub use controller::run;
