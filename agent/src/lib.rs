//! placeholder

pub mod events;
