//! The events of a reply: when they come, and what they say.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use agentloop::messages::{Delta, StreamEvent};
use agentloop::testing::{Gate, Reply, Server};
use futures_core::Stream as _;
use serde_json::{Value, json};

use crate::{
    begin, block, call_block, close, delta, end, hello, in_time, input, kinds, ping, read, reply_of, stop,
    text, text_block, types,
};

/// All kinds of events, and the text in three places.
fn varied() -> Vec<Value> {
    vec![
        ping(),
        json!({"type": "before_the_start", "x": [1]}),
        begin(),
        ping(),
        block(0, json!({"type": "thinking", "thinking": "Hm", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m."})),
        delta(0, json!({"type": "future_delta", "v": 1})),
        delta(0, json!({"type": "signature_delta", "signature": "S1"})),
        close(0),
        block(1, json!({"type": "text", "text": "It "})),
        text(1, ""),
        text(1, "is "),
        json!({"type": "future_event", "index": 7}),
        text(1, "5"),
        close(1),
        block(2, json!({"type": "future_block", "text": "no text of the reply"})),
        text(2, ", nor this"),
        close(2),
        block(3, json!({"type": "text", "text": "!"})),
        close(3),
        call_block(4, "t1", "add"),
        input(4, ""),
        input(4, r#"{"a": "#),
        input(4, "2}"),
        close(4),
        end("tool_use"),
        ping(),
        stop(),
    ]
}

/// The same in the order in which they are told: the start comes first.
fn told() -> Vec<Value> {
    let mut events = varied();
    events[..3].rotate_right(1);
    events
}

#[tokio::test]
async fn each_event_comes_before_the_next_one_is_sent() {
    let events = varied();
    let gates: Vec<_> = events.iter().map(|_| Gate::new()).collect();
    let held = |reply: Reply, after: usize| reply.hold_after_events(after + 1, &gates[after]);
    let server = Server::start([(0..events.len()).fold(Reply::events(events.clone()), held)]).await;
    in_time(async {
        // The stream is there with its first event, of which these are in front.
        for gate in &gates[..2] {
            gate.release();
        }
        let mut stream = server.client().stream(&hello()).await.unwrap();
        for (at, event) in told().iter().enumerate() {
            assert_eq!(stream.next().await.unwrap().unwrap().kind(), event["type"]);
            // Not even the end of the body comes after `message_stop`.
            if at > 1 && at + 1 < events.len() {
                gates[at].release();
            }
        }
        assert!(stream.next().await.is_none());
    })
    .await;
    println!("{} events, each before the next", events.len());
}

#[tokio::test]
async fn pings_and_what_nobody_knows_are_passed_on() {
    let server = Server::start([Reply::events(varied())]).await;
    let mut stream = server.client().stream(&hello()).await.unwrap();
    let (events, error) = read(&mut stream).await;
    assert!(error.is_none());
    assert_eq!(kinds(&events), types(&told()));
    let StreamEvent::Other { kind, data, .. } = &events[2] else { panic!("{:?}", events[2]) };
    assert_eq!((&**kind, &**data), ("before_the_start", r#"{"type":"before_the_start","x":[1]}"#));
    let StreamEvent::ContentBlockDelta { index: 0, delta: Delta::Other { kind, json, .. }, .. } = &events[6]
    else {
        panic!("{:?}", events[6])
    };
    assert_eq!((&**kind, json.get()), ("future_delta", r#"{"type":"future_delta","v":1}"#));
    let StreamEvent::ContentBlockStart { index: 2, json, .. } = &events[15] else {
        panic!("{:?}", events[15])
    };
    assert_eq!(json.get(), r#"{"type":"future_block","text":"no text of the reply"}"#);

    let message = stream.final_message().await.unwrap();
    let content = json!([
        {"type": "thinking", "thinking": "Hmm.", "signature": "S1"},
        {"type": "text", "text": "It is 5"},
        {"type": "future_block", "text": "no text of the reply, nor this"},
        {"type": "text", "text": "!"},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}},
    ]);
    assert_eq!(serde_json::from_str::<Value>(message.content_json()).unwrap(), content);
}

#[tokio::test]
async fn the_text_stream_put_together_is_the_text_of_the_message() {
    let server = Server::start(vec![Reply::events(varied()); 2]).await;
    let client = server.client();
    let text = client.stream(&hello()).await.unwrap().final_message().await.unwrap().text();
    let mut stream = client.stream(&hello()).await.unwrap().text_stream();
    let mut pieces = Vec::new();
    while let Some(piece) = stream.next().await {
        pieces.push(piece.unwrap());
    }
    assert_eq!(pieces, ["It ", "is ", "5", "!"], "text of the starts too, and nothing empty");
    assert_eq!(pieces.concat(), text);
    assert_eq!(stream.final_message().await.unwrap().text(), text);
}

#[tokio::test]
async fn the_snapshot_at_each_event_is_the_reply_so_far() {
    let thinking = r#"{"type":"thinking","thinking":"Hm","signature":""}"#;
    let signed = r#"{"type":"thinking","thinking":"Hmm.","signature":"S1"}"#;
    let call =
        |input: &str| format!(r#"{signed},{{"type":"tool_use","id":"t1","name":"add","input":{input}}}"#);
    let steps = [
        (begin(), String::new()),
        (block(0, serde_json::from_str(thinking).unwrap()), thinking.to_owned()),
        (delta(0, json!({"type": "thinking_delta", "thinking": "m."})), thinking.replace("Hm", "Hmm.")),
        (delta(0, json!({"type": "signature_delta", "signature": "S1"})), signed.to_owned()),
        (close(0), signed.to_owned()),
        (call_block(1, "t1", "add"), call("{}")),
        (input(1, r#"{"a": "#), call(r#""{\"a\": ""#)),
        (input(1, "2}"), call(r#"{"a": 2}"#)),
        (close(1), call(r#"{"a": 2}"#)),
        (ping(), call(r#"{"a": 2}"#)),
        (end("tool_use"), call(r#"{"a": 2}"#)),
        (stop(), call(r#"{"a": 2}"#)),
    ];
    let server = Server::start([Reply::events(steps.iter().map(|(event, _)| event.clone()))]).await;
    let mut stream = server.client().stream(&hello()).await.unwrap();
    for (event, content) in &steps {
        assert_eq!(stream.next().await.unwrap().unwrap().kind(), event["type"]);
        let snapshot = stream.snapshot().unwrap();
        assert_eq!(snapshot.content_json(), format!("[{content}]"), "{event}");
        assert_eq!((snapshot.id(), snapshot.request_id()), ("msg_1", Some("req_1")));
        let is_ended = matches!(event["type"].as_str(), Some("message_delta" | "message_stop"));
        assert_eq!(snapshot.stop_reason().is_some(), is_ended);
        assert_eq!(snapshot.usage().output_tokens, if is_ended { 7 } else { 1 });
    }
    let snapshot = stream.snapshot().unwrap();
    assert_eq!(stream.final_message().await.unwrap().json(), snapshot.json());
}

#[tokio::test]
async fn a_stream_and_its_message_have_the_headers_of_the_response() {
    let reply = Reply::events(reply_of(&["x"]))
        .header("request-id", "req_own")
        .header("anthropic-ratelimit-tokens-remaining", "7000")
        .header("set-cookie", "a=b");
    let server = Server::start(vec![reply; 2]).await;
    let client = server.client();
    let stream = client.stream(&hello()).await.unwrap();
    assert_eq!(stream.request_id(), Some("req_own"));
    assert_eq!(stream.header("Anthropic-RateLimit-Tokens-Remaining"), Some("7000"));
    assert_eq!((stream.header("set-cookie"), stream.header("x-none")), (None, None));
    let streamed = stream.final_message().await.unwrap();
    for message in [streamed, client.create_streamed(&hello()).await.unwrap()] {
        assert_eq!(message.request_id(), Some("req_own"));
        assert_eq!(message.header("anthropic-ratelimit-tokens-remaining"), Some("7000"));
        assert_eq!(message.header("set-cookie"), None);
    }
}

#[tokio::test]
async fn the_stream_of_futures_gives_what_next_gives() {
    let server = Server::start(vec![Reply::events(varied()); 2]).await;
    let client = server.client();
    let mut stream = client.stream(&hello()).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        events.push(event.unwrap());
    }
    assert_eq!(kinds(&events), types(&told()));
    let mut stream = client.stream(&hello()).await.unwrap().text_stream();
    let mut text = String::new();
    while let Some(piece) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        text.push_str(&piece.unwrap());
    }
    assert_eq!(text, "It is 5!");
}

#[tokio::test]
async fn a_next_that_is_dropped_loses_no_event() {
    let server = Server::start([Reply::events(varied()).in_pieces(3)]).await;
    let mut stream = server.client().stream(&hello()).await.unwrap();
    let (mut events, mut dropped) = (Vec::new(), 0);
    loop {
        let mut next = Box::pin(stream.next());
        let polled = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
        drop(next);
        match polled {
            Poll::Ready(Some(event)) => events.push(event.unwrap()),
            Poll::Ready(None) => break,
            Poll::Pending => {
                dropped += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    println!("{} events, {dropped} futures dropped", events.len());
    assert!(dropped > 20, "{dropped}");
    assert_eq!(kinds(&events), types(&told()));
    assert_eq!(stream.final_message().await.unwrap().text(), "It is 5!");
}

#[tokio::test]
async fn one_request_asks_for_events_and_for_no_coding() {
    let server =
        Server::start([Reply::events([begin(), text_block(0), close(0), end("end_turn"), stop()])]).await;
    server.client().stream(&hello()).await.unwrap().final_message().await.unwrap();
    let [request] = &server.requests()[..] else { panic!("not one request") };
    assert_eq!(request.json()["stream"], true);
    for absent in ["accept-encoding", "last-event-id"] {
        assert_eq!(request.header(absent), None);
    }
}
