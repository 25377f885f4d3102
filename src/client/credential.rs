//! Credentials that change while a client runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::auth::Scheme;
use crate::error::{Error, ErrorKind, Result};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Fetch = dyn Fn() -> Pin<Box<dyn Future<Output = Result<Credential, BoxError>> + Send>> + Send + Sync;

/// What a provider gives: a key or a token, and for how long it holds. `Debug` shows no secret.
///
/// ```
/// use std::time::Duration;
///
/// use agentloop::client::Credential;
///
/// let credential = Credential::bearer("a-token").expires_in(Duration::from_secs(3600));
/// assert!(!format!("{credential:?}").contains("a-token"));
/// ```
#[derive(Clone)]
pub struct Credential {
    secret: String,
    scheme: Scheme,
    expires_in: Option<Duration>,
}

impl Credential {
    /// A token, sent as `authorization: Bearer`.
    pub fn bearer(token: impl Into<String>) -> Self {
        Self { secret: token.into(), scheme: Scheme::Bearer, expires_in: None }
    }

    /// An API key, sent as `x-api-key`.
    pub fn api_key(key: impl Into<String>) -> Self {
        Self { secret: key.into(), scheme: Scheme::ApiKey, expires_in: None }
    }

    /// How long it holds from now on. A new one is asked for a little before that. Without it, a
    /// token holds until the API refuses it.
    #[must_use]
    pub fn expires_in(mut self, lifetime: Duration) -> Self {
        self.expires_in = Some(lifetime);
        self
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("scheme", &self.scheme)
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

/// Where a client gets its credentials from; made by
/// [`Auth::provider`](super::Auth::provider).
#[derive(Clone)]
pub struct CredentialProvider {
    fetch: Arc<Fetch>,
}

impl CredentialProvider {
    pub(super) fn new<F, Fut, E>(fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credential, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self {
            fetch: Arc::new(move || {
                let token = fetch();
                Box::pin(async move { token.await.map_err(Into::into) })
            }),
        }
    }
}

impl fmt::Debug for CredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialProvider(..)")
    }
}

/// The credentials of a client whose provider gives them: the last one is kept while it holds.
#[derive(Debug)]
pub(super) struct Credentials {
    provider: CredentialProvider,
    /// Held while the provider is asked, so that it is asked once for all who wait.
    asking: Mutex<()>,
    state: std::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Kept>,
    /// How many there were.
    count: u64,
    /// The last time that the provider gave none.
    failure: Option<(Instant, Error)>,
}

#[derive(Clone, Debug)]
struct Kept {
    issued: Issued,
    /// From when on a new one is asked for.
    renew: Option<Instant>,
}

/// A credential as a header.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    /// Tells it from the ones before and after it.
    pub(super) number: u64,
    expires: Option<Instant>,
}

impl Issued {
    /// True while it has not run out.
    pub(super) fn holds(&self) -> bool {
        !is_past(self.expires)
    }
}

impl Credentials {
    pub(super) fn new(provider: CredentialProvider) -> Self {
        Self { provider, asking: Mutex::new(()), state: std::sync::Mutex::default() }
    }

    /// A credential that holds. `refused` is the number of one that the API did not take. While an
    /// old one holds, nobody waits for a new one longer than `patience`.
    pub(super) async fn get(&self, refused: Option<u64>, patience: Duration) -> Result<Issued> {
        match self.usable(refused) {
            Some(kept) if !is_past(kept.renew) => Ok(kept.issued),
            // It holds for a while yet: one call asks for the next one, and the others go on.
            Some(kept) => {
                let Ok(_asking) = self.asking.try_lock() else { return Ok(kept.issued) };
                // Said before, since this call may be dropped while it asks.
                if let Some(kept) = &mut self.lock().kept {
                    kept.renew = Instant::now().checked_add(AGAIN);
                }
                match timeout(patience.min(AGAIN), self.fetch()).await {
                    Ok(Ok(fresh)) => return Ok(self.keep(fresh)),
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "the provider gave no new credential, the old one is used");
                    }
                    Err(_) => {
                        tracing::warn!("the provider takes long for a new credential, the old one is used")
                    }
                }
                Ok(kept.issued)
            }
            None => {
                let came = Instant::now();
                let _asking = self.asking.lock().await;
                // Another call may have got an answer meanwhile.
                if let Some(kept) = self.usable(refused) {
                    return Ok(kept.issued);
                }
                if let Some((at, error)) = &self.lock().failure
                    && *at >= came
                {
                    return Err(error.clone());
                }
                match self.fetch().await {
                    Ok(fresh) => Ok(self.keep(fresh)),
                    Err(error) => {
                        self.lock().failure = Some((Instant::now(), error.clone()));
                        Err(error)
                    }
                }
            }
        }
    }

    fn keep(&self, mut fresh: Kept) -> Issued {
        let mut state = self.lock();
        state.count += 1;
        fresh.issued.number = state.count;
        state.failure = None;
        state.kept.insert(fresh).issued.clone()
    }

    fn usable(&self, refused: Option<u64>) -> Option<Kept> {
        let kept = self.lock().kept.clone();
        kept.filter(|kept| refused != Some(kept.issued.number) && kept.issued.holds())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the provider. The number is not that of the credential yet.
    async fn fetch(&self) -> Result<Kept> {
        let token = (self.provider.fetch)().await.map_err(|error| {
            Error::new(ErrorKind::Credential, "the provider of `auth` gave no credential").with_source(error)
        })?;
        let header = token.scheme.header(&token.secret, "the provider of `auth`");
        let (name, value) = header.map_err(|error| Error::new(ErrorKind::Credential, error.to_string()))?;
        let now = Instant::now();
        let after = |wait: Duration| now.checked_add(wait);
        Ok(Kept {
            issued: Issued { name, value, number: 0, expires: token.expires_in.and_then(after) },
            renew: token.expires_in.and_then(|lifetime| after(lifetime - EARLY.min(lifetime / 4))),
        })
    }
}

fn is_past(limit: Option<Instant>) -> bool {
    limit.is_some_and(|limit| limit <= Instant::now())
}

/// A new credential is asked for this long before the old one expires, but not in the first three
/// quarters of its life.
const EARLY: Duration = Duration::from_secs(60);

/// How long the provider is left alone after a failure while the old credential holds.
const AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Poll;

    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Gives `token-0`, `token-1`, …, each for ten minutes, but fails where `fails` says so.
    fn credentials(fails: fn(u32) -> bool) -> (Credentials, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let provider = CredentialProvider::new(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let token = Credential::bearer(format!("token-{number}")).expires_in(MINUTE * 10);
            async move { if fails(number) { Err("down") } else { Ok(token) } }
        });
        (Credentials::new(provider), asked)
    }

    async fn value(credentials: &Credentials) -> String {
        credentials.get(None, MINUTE).await.unwrap().value.to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_a_minute_before_it_expires() {
        let (credentials, asked) = credentials(|_| false);
        assert_eq!(value(&credentials).await, "Bearer token-0");
        advance(MINUTE * 9 - Duration::from_secs(1)).await;
        assert_eq!(value(&credentials).await, "Bearer token-0");
        advance(Duration::from_secs(1)).await;
        assert_eq!(value(&credentials).await, "Bearer token-1");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_holds_outlives_a_failing_provider() {
        let (credentials, asked) = credentials(|number| number > 0);
        value(&credentials).await;
        advance(MINUTE * 9).await;
        // Asked once, and then left alone for a while.
        for _ in 0..3 {
            assert_eq!(value(&credentials).await, "Bearer token-0");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        advance(AGAIN).await;
        assert_eq!(value(&credentials).await, "Bearer token-0");
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        // Refused or run out, it does not help any longer.
        assert_eq!(credentials.get(Some(1), MINUTE).await.unwrap_err().kind(), ErrorKind::Credential);
        advance(MINUTE).await;
        assert_eq!(credentials.get(None, MINUTE).await.unwrap_err().kind(), ErrorKind::Credential);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_an_older_token_renews_nothing() {
        let (credentials, asked) = credentials(|_| false);
        value(&credentials).await;
        let second = credentials.get(Some(1), MINUTE).await.unwrap();
        // Another call had the first one too, and comes later.
        let again = credentials.get(Some(1), MINUTE).await.unwrap();
        assert_eq!((second.number, again.number, again.value), (2, 2, second.value));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // Also if nobody came until all that are known had run out.
        advance(MINUTE * 60).await;
        assert_eq!(credentials.get(None, MINUTE).await.unwrap().number, 3);
        assert_eq!(credentials.get(Some(1), MINUTE).await.unwrap().number, 3);
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_by_all_who_wait_and_by_nobody_else() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let provider = CredentialProvider::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            async {
                tokio::time::sleep(MINUTE).await;
                Err::<Credential, _>("down")
            }
        });
        let credentials = Arc::new(Credentials::new(provider));
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let credentials = Arc::clone(&credentials);
            calls.spawn(async move { credentials.get(None, MINUTE).await.unwrap_err().chain() });
        }
        let start = Instant::now();
        assert!(calls.join_all().await.iter().all(|error| error.contains("down")));
        assert_eq!((asked.load(Ordering::SeqCst), start.elapsed()), (1, MINUTE));
        tokio::time::sleep(MINUTE).await;
        credentials.get(None, MINUTE).await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    /// Holds a token that is to be renewed, and whose provider does not answer any more.
    async fn to_be_renewed_by_nobody() -> (Credentials, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let provider = CredentialProvider::new(move || {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if !first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, &str>(Credential::bearer("old").expires_in(MINUTE * 10))
            }
        });
        let credentials = Credentials::new(provider);
        value(&credentials).await;
        advance(MINUTE * 9).await;
        (credentials, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_holds_one_call_up_while_the_old_one_holds() {
        let (credentials, asked) = to_be_renewed_by_nobody().await;
        let credentials = Arc::new(credentials);
        let mut asks = tokio::task::JoinSet::new();
        let first = Arc::clone(&credentials);
        asks.spawn(async move { value(&first).await });
        tokio::task::yield_now().await;
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        for _ in 0..3 {
            assert_eq!(value(&credentials).await, "Bearer old");
        }
        // The one that asks has its limit too.
        let start = Instant::now();
        assert_eq!(asks.join_all().await, ["Bearer old"]);
        assert_eq!(start.elapsed(), AGAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_after_a_refusal_holds_nobody_up_whose_token_holds() {
        let (credentials, asked) = to_be_renewed_by_nobody().await;
        let mut refused = Box::pin(credentials.get(Some(1), MINUTE));
        assert!(std::future::poll_fn(|cx| Poll::Ready(refused.as_mut().poll(cx))).await.is_pending());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let other = value(&credentials);
        assert_eq!(timeout(MINUTE, other).await.ok().as_deref(), Some("Bearer old"));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_while_it_renews_is_not_followed_by_the_next() {
        let (credentials, asked) = to_be_renewed_by_nobody().await;
        let short = Duration::from_millis(1);
        assert!(timeout(short, credentials.get(None, MINUTE)).await.is_err());
        for _ in 0..3 {
            assert_eq!(value(&credentials).await, "Bearer old");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_while_it_asks_holds_nobody_up() {
        let (credentials, asked) = credentials(|_| false);
        let provider = CredentialProvider::new({
            let asked = Arc::clone(&asked);
            move || {
                let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    if first {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, &str>(Credential::bearer("second"))
                }
            }
        });
        let credentials = Credentials { provider, ..credentials };
        let dropped = timeout(MINUTE, credentials.get(None, MINUTE)).await;
        assert!(dropped.is_err());
        assert_eq!(value(&credentials).await, "Bearer second");
    }
}
