//! A server that speaks TLS, and HTTP/2 where both sides offer it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::answer::{Answer, Then};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// Empty if the server did not read it.
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opened: usize,
    pub(crate) closed: usize,
    pub(crate) requests: usize,
    /// Requests that were given up before the response was complete.
    pub(crate) abandoned: usize,
    /// The pieces of endless answers that were given to the connection.
    pub(crate) pieces: usize,
}

/// The text in a piece of an endless answer.
pub(crate) const PIECE: usize = 8 * 1024;

/// Plays its answers in order, and 418 beyond them.
pub(crate) struct Server {
    address: SocketAddr,
    authority: rcgen::Certificate,
    shared: Arc<Shared>,
    _connections: JoinSet<()>,
}

struct Shared {
    script: Mutex<VecDeque<Answer>>,
    seen: Mutex<Vec<Seen>>,
    protocols: Mutex<Vec<Option<String>>>,
    counts: watch::Sender<Counts>,
}

impl Server {
    /// A server that offers HTTP/2 and HTTP/1.1.
    pub(crate) async fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        Self::with_protocols(&["h2", "http/1.1"], script).await
    }

    pub(crate) async fn with_protocols(protocols: &[&str], script: impl IntoIterator<Item = Answer>) -> Self {
        Self::made(protocols, None, script).await
    }

    /// A server that lets in who shows this certificate.
    pub(crate) async fn that_asks_for(identity: &Identity, script: impl IntoIterator<Item = Answer>) -> Self {
        Self::made(&["h2"], Some(identity), script).await
    }

    async fn made(
        protocols: &[&str],
        client: Option<&Identity>,
        script: impl IntoIterator<Item = Answer>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        // Authorities of one name would be taken for each other.
        params.distinguished_name.push(DnType::CommonName, address.to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();

        // The provider is named: the process may have two, and then none is the default.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match client {
            None => config.with_no_client_auth(),
            Some(client) => {
                let mut roots = RootCertStore::empty();
                roots.add(client.authority.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = config
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();

        let shared = Arc::new(Shared {
            script: Mutex::new(script.into_iter().collect()),
            seen: Mutex::default(),
            protocols: Mutex::default(),
            counts: watch::Sender::default(),
        });
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), Arc::clone(&shared)));
        Self { address, authority, shared, _connections: connections }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate to trust.
    pub(crate) fn authority(&self) -> &rcgen::Certificate {
        &self.authority
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// What ALPN settled on, by connection.
    pub(crate) fn protocols(&self) -> Vec<Option<String>> {
        self.shared.protocols.lock().unwrap().clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    pub(crate) async fn until(&self, reached: impl Fn(&Counts) -> bool) {
        self.shared.counts.subscribe().wait_for(reached).await.unwrap();
    }
}

/// A certificate for a client, and who vouches for it.
pub(crate) struct Identity {
    authority: rcgen::Certificate,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Identity {
    pub(crate) fn generate() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "who vouches for clients");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["client".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Self { authority, certificate, key }
    }

    pub(crate) fn chain(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn key(&self) -> String {
        self.key.serialize_pem()
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        shared.counts.send_modify(|counts| counts.opened += 1);
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            serve(socket, acceptor, &shared).await;
            shared.counts.send_modify(|counts| counts.closed += 1);
        });
    }
}

/// How an answer ends its connection.
#[derive(Default)]
struct Ends {
    go_away: Notify,
    drop: Notify,
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, shared: &Arc<Shared>) {
    // A client that does not trust the certificate is a case of its own.
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let protocol = stream.get_ref().1.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap());
    shared.protocols.lock().unwrap().push(protocol.clone());
    let stream = TokioIo::new(stream);
    let ends = Arc::new(Ends::default());
    let service = service_fn(|request| {
        let (shared, ends) = (Arc::clone(shared), Arc::clone(&ends));
        async move { respond(request, &shared, &ends).await }
    });
    // The client's errors are for the client's side to see.
    if protocol.as_deref() == Some("h2") {
        // The windows of the specification, which are the smallest that clients meet.
        let mut connection = std::pin::pin!(
            http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(65_535)
                .initial_connection_window_size(65_535)
                .serve_connection(stream, service)
        );
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ends.drop.notified() => return,
            () = ends.go_away.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(stream, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ends.drop.notified() => return,
            () = ends.go_away.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

async fn respond(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    ends: &Ends,
) -> Result<Response<Sent>, io::Error> {
    let answer = shared.script.lock().unwrap().pop_front().unwrap_or_else(|| Answer::new(418, ""));
    let mut guard = Guard { shared: Arc::clone(shared), done: false };
    let (head, incoming) = request.into_parts();
    let body = match answer.then {
        Then::Early | Then::Refuse => Bytes::new(),
        _ => incoming.collect().await.map_err(io::Error::other)?.to_bytes(),
    };
    shared.seen.lock().unwrap().push(Seen { version: head.version, headers: head.headers, body });
    shared.counts.send_modify(|counts| counts.requests += 1);
    if let Some(barrier) = answer.meet {
        barrier.wait().await;
    }
    match answer.then {
        Then::Drop => {
            ends.drop.notify_one();
            std::future::pending::<Infallible>().await;
        }
        Then::GoAway => ends.go_away.notify_one(),
        Then::Refuse => {
            guard.done = true;
            return Err(io::Error::other("refused"));
        }
        Then::Silence => {
            std::future::pending::<Infallible>().await;
        }
        Then::End | Then::Endless | Then::Early | Then::Reset | Then::Stall => {}
    }
    let mut response = Response::builder().status(answer.status);
    for (name, value) in [("content-type", answer.content_type), ("request-id", "req_h")] {
        response = response.header(name, value);
    }
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let until = answer.until.map(|told| Box::pin(told.cancelled_owned()));
    let body = Sent { text: Some(answer.body.into()), until, then: answer.then, guard };
    Ok(response.body(body).unwrap())
}

/// Counts a request as abandoned if it is dropped before it is done.
struct Guard {
    shared: Arc<Shared>,
    done: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.done {
            self.shared.counts.send_modify(|counts| counts.abandoned += 1);
        }
    }
}

/// A body of one piece, and what comes after it.
struct Sent {
    text: Option<Bytes>,
    until: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    then: Then,
    guard: Guard,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(text) = self.text.take().filter(|text| !text.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        if let Some(until) = &mut self.until {
            ready!(until.as_mut().poll(cx));
        }
        match self.then {
            Then::Stall => return Poll::Pending,
            Then::Endless => {
                let frame = r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#;
                let frame = format!("{}{}\"}}}}\n\n", &frame[..frame.len() - 3], "x".repeat(PIECE));
                self.guard.shared.counts.send_modify(|counts| counts.pieces += 1);
                return Poll::Ready(Some(Ok(Frame::data(frame.into()))));
            }
            Then::Reset => {
                self.guard.done = true;
                return Poll::Ready(Some(Err(io::Error::other("reset"))));
            }
            _ => self.guard.done = true,
        }
        Poll::Ready(None)
    }
}
