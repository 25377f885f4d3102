//! The client over real sockets.

mod requests;
mod server;
