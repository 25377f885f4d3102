//! The credential, and the one header it is sent as.

use std::fmt;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::credential::{Credential, CredentialProvider};
use crate::error::{Error, Result};

/// How a client proves who it is. Exactly one header is sent, or none.
///
/// `Debug` shows the kind and never the secret. Blanks and line ends around a secret are cut off.
///
/// ```
/// use agentloop::client::Auth;
/// use agentloop::Client;
///
/// let client = Client::builder()
///     .auth(Auth::Bearer("a-token".into()))
///     .base_url("http://127.0.0.1:8080")
///     .build()?;
/// # Ok::<(), agentloop::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Auth {
    /// An API key, sent as `x-api-key`.
    ApiKey(String),
    /// An OAuth or workload token, sent as `authorization: Bearer`.
    Bearer(String),
    /// No credential: for gateways that add their own.
    None,
    /// Credentials that change, from a function that is asked for them.
    Provider(CredentialProvider),
}

/// How a secret is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    ApiKey,
    Bearer,
}

impl Auth {
    /// Credentials from a function: for tokens that run out, and keys that somebody rotates.
    ///
    /// It is asked before the first request, again shortly before a token expires
    /// ([`Credential::expires_in`]), and once more for a call whose token the API refuses (401), which is
    /// then sent again without counting as a retry. Calls that need a token at the same moment share
    /// one answer. If the function fails while the old token still holds, that one is used.
    ///
    /// The function runs inside the call that needs its answer, and is dropped with it: what must not
    /// be cut short belongs into a task of your own.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use agentloop::Client;
    /// use agentloop::client::{Auth, Credential};
    ///
    /// let auth = Auth::provider(|| async {
    ///     let token = std::fs::read_to_string("/run/secrets/token")?;
    ///     Ok::<_, std::io::Error>(Credential::bearer(token).expires_in(Duration::from_secs(600)))
    /// });
    /// let client = Client::builder().auth(auth).base_url("http://127.0.0.1:8080").build()?;
    /// # Ok::<(), agentloop::Error>(())
    /// ```
    pub fn provider<F, Fut, E>(fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credential, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::Provider(CredentialProvider::new(fetch))
    }

    /// The header that every request has; `origin` is the setter or the variable that an error names.
    pub(crate) fn header(&self, origin: &str) -> Result<Option<(HeaderName, HeaderValue)>> {
        Ok(match self {
            Self::ApiKey(key) => Some(Scheme::ApiKey.header(key, origin)?),
            Self::Bearer(token) => Some(Scheme::Bearer.header(token, origin)?),
            Self::None | Self::Provider(_) => None,
        })
    }
}

impl Scheme {
    /// The header for a secret.
    pub(super) fn header(self, secret: &str, origin: &str) -> Result<(HeaderName, HeaderValue)> {
        Ok(match self {
            Self::ApiKey => (X_API_KEY, value("", secret, origin)?),
            Self::Bearer => (AUTHORIZATION, value("Bearer ", secret, origin)?),
        })
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiKey(_) => "ApiKey(..)",
            Self::Bearer(_) => "Bearer(..)",
            Self::None => "None",
            Self::Provider(_) => "Provider(..)",
        })
    }
}

pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// True for the headers that carry a credential.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    *name == X_API_KEY || *name == AUTHORIZATION
}

fn value(scheme: &str, secret: &str, origin: &str) -> Result<HeaderValue> {
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(Error::config(format!("the credential of {origin} is empty")));
    }
    let bad = || {
        Error::config(format!(
            "the credential of {origin} holds a character that no header may hold, a line break for instance"
        ))
    };
    if !secret.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(bad());
    }
    let mut value = HeaderValue::try_from(format!("{scheme}{secret}")).map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn each_kind_has_its_header() {
        let (name, value) = Auth::ApiKey(" sk-1\r\n".into()).header("x").unwrap().unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-api-key", "sk-1"));
        assert!(value.is_sensitive());
        let (name, value) = Auth::Bearer("\ttok".into()).header("x").unwrap().unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer tok"));
        assert!(value.is_sensitive());
        assert!(Auth::None.header("x").unwrap().is_none());
    }

    #[test]
    fn a_bad_secret_names_where_it_came_from_and_not_itself() {
        for secret in ["", " \n", "SEN\nTINEL", "SEN\0TINEL", "SEN\tTINEL", "SENTINEL-é", "SEN\u{7f}TINEL"] {
            for auth in [Auth::ApiKey(secret.into()), Auth::Bearer(secret.into())] {
                let error = auth.header("`ANTHROPIC_API_KEY`").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config, "{secret:?}");
                let shown = format!("{error} {error:?} {}", error.chain());
                assert!(shown.contains("ANTHROPIC_API_KEY"), "{shown}");
                assert!(!shown.contains("SEN"), "{shown}");
            }
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        for auth in [Auth::ApiKey("SENTINEL".into()), Auth::Bearer("SENTINEL".into())] {
            assert!(!format!("{auth:?} {auth:#?}").contains("SENTINEL"));
        }
    }
}
