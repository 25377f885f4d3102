//! A sentinel in every secret place shows up in nothing that is printed.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use agentloop::Client;
use agentloop::MessageRequest;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::server::{Reply, Server};

const SENTINEL: &str = "sk-ant-SENTINEL";

/// Writes every field of every event and span down.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

impl Visit for Everything {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn shown(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let page = format!("your request had x-api-key: {SENTINEL} and x-own: {SENTINEL}");
    let object =
        format!(r#"{{"error":{{"type":"authentication_error","message":"no such key: {SENTINEL}"}}}}"#);
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let html = [("content-type", "text/html")];
    let script = [
        Reply::cut(""),
        Reply::cut(cut),
        Reply::new(503, &[("retry-after-ms", "1")], ""),
        Reply::new(502, &html, &page),
        Reply::new(200, &html, &page),
        Reply::json(401, &object),
        Reply::json(200, &object),
        Reply::new(307, &[("location", &format!("http://u:{SENTINEL}@127.0.0.1:1/?k={SENTINEL}"))], ""),
        Reply::json(200, &format!("{{\"{SENTINEL}")),
    ];
    let attempts = script.len();
    let server = Server::start(script);
    let log = Everything::default();
    // While there is but one dispatcher, other tests' threads decide for it and switch events off.
    let _second = tracing::Dispatch::new(log.clone());
    let _guard = tracing::subscriber::set_default(log.clone());

    let mut all = String::new();
    let url = format!("{}/?key={SENTINEL}", server.url());
    for with_token in [false, true] {
        let mut builder =
            Client::builder().no_proxy().base_url(&url).api_key(SENTINEL).header("x-own", SENTINEL);
        if with_token {
            builder = builder.auth_token(SENTINEL);
        }
        all += &shown(&builder);
        all += &shown(&builder.build().unwrap());
    }

    let client = Client::builder()
        .no_proxy()
        .base_url(&url)
        .api_key(SENTINEL)
        .header("x-own", SENTINEL)
        .build()
        .unwrap();
    let request = MessageRequest::from(format!("prompt {SENTINEL}").as_str()).header("x-call", SENTINEL);
    while server.seen().len() < attempts {
        let retries = if server.seen().is_empty() { 3 } else { 0 };
        let error = client.create(&request.clone().max_retries(retries)).await.unwrap_err();
        all += &format!("{error} {} {}", error.chain(), shown(&error));
    }
    assert_eq!(server.seen().len(), attempts);

    // No connection, and no URL that could be read.
    let refused = Client::builder().no_proxy().api_key(SENTINEL).max_retries(0);
    for url in [
        format!("http://127.0.0.1:1/{SENTINEL}?k={SENTINEL}"),
        format!("http://{SENTINEL}@h"),
        SENTINEL.into(),
    ] {
        let outcome = match refused.clone().base_url(url).build() {
            Ok(client) => client.create(&request).await,
            Err(error) => Err(error),
        };
        let error = outcome.unwrap_err();
        all += &format!("{error} {} {}", error.chain(), shown(&error));
    }

    let log = log.0.lock().unwrap();
    for (name, text) in [("output", &all), ("log", &*log)] {
        let at = text.find("SENTINEL").map(|at| &text[at.saturating_sub(200)..text.len().min(at + 50)]);
        assert_eq!(at, None, "in the {name}");
    }
    // What was looked at is what could have shown it.
    assert!(all.contains("ApiKey(..)") && all.contains("x-own") && all.contains("[redacted]"));
    assert!(log.contains("gen_ai.request.model") && log.contains("trying again"), "{log}");
}
