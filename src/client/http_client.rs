//! The HTTP client that sends our requests when the user brings none.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect, retry};

use super::base_url::BaseUrl;
use crate::error::{Error, Result};

/// Makes the HTTP client; `origin` is where the base URL came from.
pub(crate) fn build(base_url: &BaseUrl, origin: &str, connect: Duration, no_proxy: bool) -> Result<Client> {
    if base_url.is_https() && !HAS_TLS {
        return Err(Error::config(format!(
            "the base URL of {origin} is https, and this build of agentloop has no TLS: switch on its feature \
             `rustls-tls` or `native-tls`, or give it an `http_client`"
        )));
    }
    let full = || settings(connect, no_proxy).build();
    let bare = || without_certificates(settings(connect, no_proxy)).build();
    let built = match (base_url.is_https(), no_proxy) {
        (true, _) => full(),
        // Only a proxy that speaks TLS needs the system's certificates, which may fail to load.
        (false, false) => full().or_else(|_| bare()),
        // Nothing speaks TLS, and loading the certificates takes tens of milliseconds.
        (false, true) => bare(),
    };
    built.map_err(|error| Error::config("the HTTP client can't be set up").with_source(error.without_url()))
}

fn settings(connect: Duration, no_proxy: bool) -> ClientBuilder {
    // Redirects would carry the key to another host. Retries live in one place, which is not here.
    // Decompression and Referer are features of reqwest that any other crate can switch on.
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(connect)
        .tcp_keepalive(Duration::from_secs(60))
        // Load balancers close idle connections after 60 seconds and more.
        .pool_idle_timeout(Duration::from_secs(50));
    let builder = if no_proxy { builder.no_proxy() } else { builder };
    backend(builder)
}

// The backend is named, since reqwest's own choice depends on what other crates switch on, and may
// then be one without a crypto provider, which panics.

#[cfg(feature = "rustls-tls")]
fn backend(builder: ClientBuilder) -> ClientBuilder {
    builder.tls_backend_rustls()
}

#[cfg(all(feature = "native-tls", not(feature = "rustls-tls")))]
fn backend(builder: ClientBuilder) -> ClientBuilder {
    builder.tls_backend_native()
}

#[cfg(not(any(feature = "rustls-tls", feature = "native-tls")))]
fn backend(builder: ClientBuilder) -> ClientBuilder {
    builder
}

#[cfg(any(feature = "rustls-tls", feature = "native-tls"))]
fn without_certificates(builder: ClientBuilder) -> ClientBuilder {
    builder.tls_certs_only([])
}

#[cfg(not(any(feature = "rustls-tls", feature = "native-tls")))]
fn without_certificates(builder: ClientBuilder) -> ClientBuilder {
    builder
}

const HAS_TLS: bool = cfg!(any(feature = "rustls-tls", feature = "native-tls"));
