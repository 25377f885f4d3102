//! The HTTP client that sends our requests when the user brings none.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use reqwest::{Client, ClientBuilder, Proxy, Url, redirect, retry};

use super::base_url::BaseUrl;
use crate::error::{Error, Result};

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) connect_timeout: Duration,
    pub(crate) no_proxy: bool,
    pub(crate) proxy: Option<String>,
    /// In PEM, each a bundle.
    pub(crate) roots: Vec<Vec<u8>>,
    /// The chain and its key, in PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Connections {
    /// The setter that an HTTP client from elsewhere takes the effect of.
    pub(crate) fn setter_in_vain(&self) -> Option<&'static str> {
        let set = [
            (self.proxy.is_some(), "proxy"),
            (!self.roots.is_empty(), "root_certificate"),
            (self.identity.is_some(), "client_certificate"),
        ];
        set.into_iter().find_map(|(is_set, setter)| is_set.then_some(setter))
    }

    /// The password of the proxy, and the credential that it is sent as.
    pub(crate) fn proxy_secrets(&self) -> Vec<String> {
        let Some(url) = self.proxy.as_ref().and_then(|url| Url::parse(url).ok()) else { return Vec::new() };
        let Some(password) = url.password() else { return Vec::new() };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, plain) = (decoded(url.username()), decoded(password));
        vec![STANDARD.encode(format!("{user}:{plain}")), plain]
    }

    /// Makes the HTTP client; `origin` is where the base URL came from.
    pub(crate) fn build(&self, base_url: &BaseUrl, origin: &str) -> Result<Client> {
        let certificates = !self.roots.is_empty() || self.identity.is_some();
        if (base_url.is_https() || certificates) && !HAS_TLS {
            return Err(Error::config(format!(
                "the base URL of {origin} or a certificate asks for TLS, and this build of agentloop has none: \
                 switch on its feature `rustls-tls` or `native-tls`, or give it an `http_client`"
            )));
        }
        let full = || Ok(self.settings()?.build());
        let bare = || Ok(without_certificates(self.settings()?).build());
        let built = match (base_url.is_https() || certificates, self.no_proxy && self.proxy.is_none()) {
            (true, _) => full()?,
            // Only a proxy that speaks TLS needs the system's certificates, which may fail to load.
            (false, false) => match full()? {
                Ok(client) => Ok(client),
                Err(_) => bare()?,
            },
            // Nothing speaks TLS, and loading the certificates takes tens of milliseconds.
            (false, true) => bare()?,
        };
        built.map_err(|error: reqwest::Error| {
            Error::config("the HTTP client can't be set up").with_source(error.without_url())
        })
    }

    fn settings(&self) -> Result<ClientBuilder> {
        // Redirects would carry the key to another host. Retries live in one place, which is not here.
        // Decompression and Referer are features of reqwest that any other crate can switch on.
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .connect_timeout(self.connect_timeout)
            // Routers forget a connection that is silent for minutes, and tell nobody.
            .tcp_keepalive(Duration::from_secs(60))
            .http2_keep_alive_interval(Duration::from_secs(60))
            .http2_keep_alive_timeout(Duration::from_secs(30))
            // Load balancers close idle connections after 60 seconds and more.
            .pool_idle_timeout(Duration::from_secs(50));
        if self.no_proxy {
            builder = builder.no_proxy();
        }
        if let Some(url) = &self.proxy {
            // No error shows the URL, which may hold a password. reqwest takes any text for a host.
            let known = Url::parse(url).is_ok_and(|url| PROXIES.contains(&url.scheme()) && url.has_host());
            let Some(proxy) = Proxy::all(url).ok().filter(|_| known) else {
                return Err(Error::config(
                    "the URL of `proxy` can't be used: it begins with `http://`, `https://`, `socks4://`, \
                     `socks5://` or `socks5h://`, and a host follows",
                ));
            };
            builder = builder.proxy(proxy);
        }
        with_certificates(backend(builder), &self.roots, self.identity.as_ref())
    }
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

#[cfg(any(feature = "rustls-tls", feature = "native-tls"))]
fn with_certificates(
    mut builder: ClientBuilder,
    roots: &[Vec<u8>],
    identity: Option<&(Vec<u8>, Vec<u8>)>,
) -> Result<ClientBuilder> {
    let bad = |setter: &str, error: reqwest::Error| {
        Error::config(format!("`{setter}` can't be read as PEM")).with_source(error)
    };
    for pem in roots {
        let bundle =
            reqwest::Certificate::from_pem_bundle(pem).map_err(|error| bad("root_certificate", error))?;
        if bundle.is_empty() {
            return Err(Error::config("`root_certificate` holds no certificate in PEM"));
        }
        builder = builder.tls_certs_merge(bundle);
    }
    if let Some((chain, key)) = identity {
        // What is wrong with a key is nobody's business but the owner's.
        let identity = self::identity(chain, key).map_err(|_| {
            Error::config(
                "`client_certificate` can't be read: a chain and its key (PKCS#8), each in PEM, make one",
            )
        })?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

#[cfg(not(any(feature = "rustls-tls", feature = "native-tls")))]
fn with_certificates(
    builder: ClientBuilder,
    _roots: &[Vec<u8>],
    _identity: Option<&(Vec<u8>, Vec<u8>)>,
) -> Result<ClientBuilder> {
    Ok(builder)
}

#[cfg(feature = "rustls-tls")]
fn identity(chain: &[u8], key: &[u8]) -> reqwest::Result<reqwest::Identity> {
    reqwest::Identity::from_pem(&[key, b"\n", chain].concat())
}

#[cfg(all(feature = "native-tls", not(feature = "rustls-tls")))]
fn identity(chain: &[u8], key: &[u8]) -> reqwest::Result<reqwest::Identity> {
    reqwest::Identity::from_pkcs8_pem(chain, key)
}

const PROXIES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

const HAS_TLS: bool = cfg!(any(feature = "rustls-tls", feature = "native-tls"));
