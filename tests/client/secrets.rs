//! A sentinel in every secret place shows up in nothing that is printed.

use std::fmt::Debug;
use std::io;

use agentloop::client::{Auth, Credential};
use agentloop::{Client, ClientBuilder, MessageRequest, ToolRunner};

use crate::everything::{Everything, Logged};
use crate::server::{Reply, Server};

const SENTINEL: &str = "sk-ant-SENTINEL";

fn shown(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

/// What goes wrong, with the secrets in every place that a server may put them.
fn script() -> Vec<Reply> {
    let page = format!("your request had x-api-key: {SENTINEL} and x-own: {SENTINEL}");
    let object =
        format!(r#"{{"error":{{"type":"authentication_error","message":"no such key: {SENTINEL}"}}}}"#);
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let html = [("content-type", "text/html")];
    let events = [("content-type", "text/event-stream")];
    let cookie = format!("session={SENTINEL}");
    vec![
        Reply::cut(""),
        Reply::cut(cut),
        Reply::new(503, &[("retry-after-ms", "1"), ("set-cookie", &cookie)], ""),
        Reply::new(502, &html, &page),
        Reply::new(200, &html, &page),
        Reply::json(401, &object),
        Reply::json(200, &object),
        Reply::new(307, &[("location", &format!("http://u:{SENTINEL}@127.0.0.1:1/?k={SENTINEL}"))], ""),
        Reply::json(200, &format!("{{\"{SENTINEL}")),
        Reply::new(200, &events, &format!("event: error\ndata: {object}\n\n")),
        Reply::new(200, &events, &format!("event: error\ndata: {SENTINEL}\n\n")),
        Reply::new(200, &events, &format!("event: {SENTINEL}\ndata: {{\"{SENTINEL}\n\n")),
        Reply::new(200, &events, &object),
    ]
}

/// A key of odd characters, in every spelling that a server may give it back in.
#[tokio::test]
async fn no_spelling_of_a_secret_gets_through() {
    const KEY: &str = "sk-ant/SENTINEL+key;Part=one";
    let spellings = [
        KEY.to_owned(),
        KEY.replace('/', "\\/"),
        KEY.replace('S', "\\u0053"),
        "sk-ant%2FSENTINEL%2Bkey%3BPart%3Done".to_owned(),
    ];
    let mut cases = 0;
    for spelled in &spellings {
        let lower = spelled.to_lowercase();
        let object = |kind: &str, message: &str, id: &str| {
            format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"{id}"}}"#
            )
        };
        let media = format!("text/{lower}");
        let id = [("content-type", "application/json"), ("request-id", spelled.as_str())];
        // A backslash is a slash in a URL.
        let target = format!("http://127.0.0.1:1/login/{}", spelled.replace('\\', ""));
        let replies = [
            Reply::json(401, &object(spelled, "m", "r")),
            Reply::json(401, &object("x", spelled, "r")),
            Reply::new(401, &[("content-type", "application/json")], &object("x", "m", spelled)),
        ];
        let elsewhere = [
            Reply::new(401, &id, &object("x", "m", "r")),
            Reply::new(500, &[("content-type", "text/html")], &format!("<p>{spelled}</p>")),
            Reply::new(500, &[("content-type", &media)], "page"),
            Reply::new(500, &[("content-encoding", &lower)], "page"),
            Reply::new(302, &[("location", &target)], ""),
        ];
        let event = [Reply::new(
            200,
            &[("content-type", "text/event-stream")],
            &format!("event: error\ndata: {}\n\n", object(spelled, spelled, spelled)),
        )];
        // Only JSON is read for what it means.
        let elsewhere = elsewhere.into_iter().filter(|_| !spelled.contains("\\u"));
        for reply in replies.into_iter().chain(event).chain(elsewhere) {
            for in_query in [false, true] {
                for streamed in [false, true] {
                    let log = Everything::default();
                    let guards = log.install();
                    let server = Server::start([reply.clone()]);
                    let builder = Client::builder().no_proxy().max_retries(0);
                    let builder = match in_query {
                        true => builder
                            .auth(Auth::None)
                            .base_url(format!("{}/?k=sk-ant%2FSENTINEL%2Bkey%3BPart%3Done", server.url())),
                        false => builder.api_key(KEY).base_url(server.url()),
                    };
                    let client = builder.build().unwrap();
                    let all = fails(&client, &"Hello".into(), usize::from(streamed) * 2).await;
                    drop(guards);
                    for text in [all, log.text()] {
                        assert!(
                            !text.to_lowercase().contains("sentinel"),
                            "{spelled} {in_query} {streamed}: {text}"
                        );
                    }
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, (4 * 9 - 5) * 4);
}

fn credentials(builder: ClientBuilder, which: usize) -> ClientBuilder {
    match which {
        0 => builder.api_key(SENTINEL),
        1 => builder.auth_token(SENTINEL),
        2 => builder.auth(Auth::provider(|| async { Ok::<_, io::Error>(Credential::bearer(SENTINEL)) })),
        _ => builder.auth(Auth::None).header("x-api-key", SENTINEL),
    }
}

/// Sends the request in one of the ways there are, and prints the error in every form.
async fn fails(client: &Client, request: &MessageRequest, way: usize) -> String {
    let error = match way {
        0 => client.create(request).await.unwrap_err(),
        1 => client.create_streamed(request).await.unwrap_err(),
        2 => match client.stream(request).await {
            Ok(mut stream) => loop {
                if let Err(error) = stream.next().await.expect("it fails") {
                    break error;
                }
            },
            Err(error) => error,
        },
        _ => {
            let runner = if way == 3 { ToolRunner::new() } else { ToolRunner::new().on_event(|_| {}) };
            let error = runner.run(client, request.clone()).await.unwrap_err();
            return format!("{error} {} {}", error.chain(), shown(&error));
        }
    };
    format!("{error} {} {}", error.chain(), shown(&error))
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let log = Everything::default();
    let guards = log.install();
    let logged = Logged::install();
    let mut all = String::new();
    let mut cases = 0;
    for which in 0..4 {
        for way in 0..5 {
            let attempts = script().len();
            let server = Server::start(script());
            let url = format!("{}/?key={SENTINEL}", server.url());
            let builder = credentials(
                Client::builder().no_proxy().base_url(&url).header("x-own", SENTINEL).max_in_flight(1),
                which,
            );
            all += &shown(&builder);
            let client = builder.build().unwrap();
            all += &shown(&client);
            let prompt = format!("prompt {SENTINEL}");
            let request = MessageRequest::from(prompt.as_str()).header("x-call", SENTINEL);
            all += &shown(&request);
            while server.seen().len() < attempts {
                // The waits between attempts are long, so they are had once.
                let retries = if cases == 0 { 3 } else { 0 };
                all += &fails(&client, &request.clone().max_retries(retries), way).await;
                cases += 1;
            }
        }
    }
    println!("{cases} failures");

    // No connection, no URL that could be read, and a proxy with a password.
    let request = MessageRequest::from("Hello").header("x-call", SENTINEL);
    let refused = Client::builder().no_proxy().api_key(SENTINEL).max_retries(0);
    let proxied =
        Client::builder().api_key(SENTINEL).max_retries(0).proxy(format!("http://u:{SENTINEL}@127.0.0.1:1"));
    for builder in [
        refused.clone().base_url(format!("http://127.0.0.1:1/{SENTINEL}?k={SENTINEL}")),
        refused.clone().base_url(format!("http://{SENTINEL}@h")),
        refused.clone().base_url(SENTINEL),
        refused.clone().proxy(SENTINEL),
        proxied.base_url(format!("http://api.invalid/?k={SENTINEL}")),
    ] {
        all += &shown(&builder);
        let outcome = match builder.build() {
            Ok(client) => client.create(&request).await,
            Err(error) => Err(error),
        };
        let error = outcome.unwrap_err();
        all += &format!("{error} {} {}", error.chain(), shown(&error));
    }
    drop(guards);

    let log = log.text();
    let logged = logged.text();
    for (name, text) in [("output", &all), ("traces", &log), ("log", &logged)] {
        let at = text.find("SENTINEL").map(|at| text.get(at.saturating_sub(200)..at + 8));
        assert_eq!(at, None, "in the {name}");
    }
    // What was looked at is what could have shown it.
    assert!(all.contains("ApiKey(..)") && all.contains("x-own") && all.contains("[redacted]"));
    assert!(log.contains("gen_ai.request.model") && log.contains("trying again"), "{log}");
    assert!(logged.contains("reqwest"), "{logged}");
}
