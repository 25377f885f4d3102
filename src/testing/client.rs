//! The client of a test.

use super::server::Server;
use crate::client::{Auth, Client};

impl Server {
    /// A client of this server. It reads no environment, goes through no proxy, and does not try
    /// again: a test that scripts an error means it. [`Client::builder`] with
    /// [`url`](Self::url) makes one that does.
    ///
    /// # Panics
    /// Never in practice: the URL is this server's own.
    #[must_use]
    pub fn client(&self) -> Client {
        let builder = Client::builder().base_url(self.url()).auth(Auth::None).no_proxy().max_retries(0);
        builder.build().expect("a client for a URL on loopback can be built")
    }
}
