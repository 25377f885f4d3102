//! Runs whose replies are streamed, over real sockets.

mod breaks;
mod cancelling;
mod drops;
mod events;
mod inputs;
mod loops;
mod pressure;
mod progress;
mod replies;
mod resuming;
mod scenarios;
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod told;
mod watching;
