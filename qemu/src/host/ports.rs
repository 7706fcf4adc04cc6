//! Free loopback ports.

use std::io;
use std::net::TcpListener;

/// `count` different ports of 127.0.0.1 that are free now.
///
/// Somebody else may take one before QEMU binds it: the caller then asks again.
pub(crate) fn free_loopback_ports(count: usize) -> io::Result<Vec<u16>> {
    // All are held until the last is known, so that they differ.
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<_>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
