//! The client over real sockets.

mod count_rules;
mod credentials;
#[path = "../support/everything.rs"]
mod everything;
mod failures;
mod limits;
mod proxies;
mod rate_limits;
mod requests;
mod retries;
mod secrets;
mod server;
mod timeouts;
#[cfg(any(feature = "rustls-tls", feature = "native-tls"))]
mod tls;
mod tokens;

use agentloop::{Client, ClientBuilder};
use server::Server;

/// A builder for this server; no proxy of the environment comes between.
fn builder(server: &Server) -> ClientBuilder {
    Client::builder().no_proxy().base_url(server.url()).api_key("sk-key")
}

fn client(server: &Server) -> Client {
    builder(server).build().unwrap()
}
