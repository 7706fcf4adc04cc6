//! What the end-to-end tests share.
//!
//! ```text
//! Appliance::get()  builds images/appliance once (the builder's cache makes it cheap), all formats
//!   .boot(How)  ->  Boxed: a virtual machine that boots it, ended with its handle
//! Registry::start() a real registry on loopback, with images that are pushed into it
//! ```
//! One machine runs at a time: two would share the same processors and be no faster.

use std::net::TcpListener;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub mod appliance;
pub mod client;
pub mod conformance;
pub mod fixture;
pub mod kept;
pub mod objects;
pub mod os_image;
pub mod pods;
pub mod programs;
pub mod registry;
pub mod service_image;
pub mod stock;
pub mod waits;

pub use appliance::{Appliance, Boxed, How};
pub use client::Client;
pub use registry::Registry;

/// Bytes that nothing makes smaller, the same for the same seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    StdRng::seed_from_u64(seed).fill(&mut noise[..]);
    noise
}

/// A port of loopback that nobody listens on: below those that the kernel gives to connections, and to listeners that name
/// none (`/proc/sys/net/ipv4/ip_local_port_range`), so that nobody gets it before the program that is told to use it.
pub fn free_port() -> u16 {
    let mut ports = (0..100).map(|_| rand::rng().random_range(10_000..32_000));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
