//! The server for uploads as a process of its own: killed, measured, and sent whatever there is.

mod fuzz;
mod hostile;
mod power;
mod serve;
mod server;
