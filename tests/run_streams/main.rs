//! Runs whose replies are streamed, over real sockets.

mod breaks;
mod events;
mod inputs;
mod replies;
#[path = "../support/mod.rs"]
mod support;
mod told;
