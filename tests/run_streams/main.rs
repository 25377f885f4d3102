//! Runs whose replies are streamed, over real sockets.

mod breaks;
mod cancelling;
mod drops;
mod events;
mod inputs;
mod pressure;
mod replies;
mod resuming;
#[path = "../support/mod.rs"]
mod support;
mod told;
mod watching;
