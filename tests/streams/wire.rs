//! The bytes of an event stream: its splits, line ends and spellings.

use agentloop::testing::{Reply, Server};
use serde_json::{Value, json};

use crate::{
    Classes, Way, at_once, call_block, case, close, hello, in_time, input, kinds, read, reply_of, server_of,
    stop, text, text_block, types, wire,
};

const CHARACTERS: &str = "é漢😀 \u{2028}\u{85}e\u{301}\u{fffd}";

/// A short reply with text of two to four bytes a character and a call.
fn events() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"content": []}}),
        text_block(0),
        text(0, CHARACTERS),
        text(0, "\r\n"),
        close(0),
        call_block(1, "t1", "f"),
        input(1, r#"{"é":"漢"}"#),
        close(1),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        stop(),
    ]
}

/// One way to spell the stream.
#[derive(Clone, Copy, Debug)]
struct Spelling {
    line_end: &'static str,
    blank_line: &'static str,
    bom: bool,
    comments: bool,
    space: bool,
    many_data_lines: bool,
    name_of_event: bool,
    last_blank_line: bool,
}

impl Spelling {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (line_end, blank_line) in
            [("\n", "\n"), ("\r\n", "\r\n"), ("\r", "\r"), ("\r\n", "\n"), ("\n", "\r\n"), ("\r", "\r\n")]
        {
            for bits in 0..64_u8 {
                let bit = |at: u8| bits >> at & 1 == 1;
                all.push(Self {
                    line_end,
                    blank_line,
                    bom: bit(0),
                    comments: bit(1),
                    space: bit(2),
                    many_data_lines: bit(3),
                    name_of_event: bit(4),
                    last_blank_line: bit(5),
                });
            }
        }
        all
    }

    fn body(self, events: &[Value]) -> Vec<u8> {
        let space = if self.space { " " } else { "" };
        let mut body = String::from(if self.bom { "\u{feff}" } else { "" });
        for (at, event) in events.iter().enumerate() {
            let mut lines = Vec::new();
            if self.comments {
                lines.extend([":", ": é", "id:7", "new"].map(str::to_owned));
            }
            if self.name_of_event {
                lines.push(format!("event:{space}{}", event["type"].as_str().unwrap()));
            }
            let data = event.to_string();
            let (brace, rest) = data.split_at(if self.many_data_lines { 1 } else { 0 });
            lines.extend(
                [brace, rest]
                    .iter()
                    .filter(|part| !part.is_empty())
                    .map(|part| format!("data:{space}{part}")),
            );
            for line in lines {
                body.push_str(&line);
                body.push_str(self.line_end);
            }
            if self.last_blank_line || at + 1 < events.len() {
                body.push_str(self.blank_line);
            }
        }
        body.into_bytes()
    }
}

#[tokio::test]
async fn every_spelling_in_pieces_of_any_size_is_the_same_reply() {
    const PIECES: [usize; 3] = [1, 5, usize::MAX];
    let events = events();
    let spellings = Spelling::all();
    let cases: Vec<_> =
        PIECES.iter().flat_map(|size| spellings.iter().map(move |spelling| (*size, *spelling))).collect();
    let replies =
        cases.iter().map(|(size, spelling)| Reply::sse(spelling.body(&events)).in_pieces(*size)).collect();
    let server = server_of(replies).await;
    let client = server.client();
    let plain = client.stream(&case(0)).await.unwrap().final_message().await.unwrap();
    assert_eq!(plain.text(), format!("{CHARACTERS}\r\n"));
    let content = plain.content_json().to_owned();

    let mut classes = Classes::default();
    let asked = cases.iter().enumerate().map(|(number, (size, spelling))| {
        let (client, size, spelling) = (client.clone(), *size, *spelling);
        async move {
            let mut stream = client.stream(&case(number)).await.unwrap();
            let (events, error) = read(&mut stream).await;
            assert!(error.is_none(), "{size} {spelling:?}: {error:?}");
            let kinds = kinds(&events).join(" ");
            (size, spelling, kinds, stream.final_message().await.unwrap())
        }
    });
    let expected = types(&events).join(" ");
    for (size, spelling, kinds, message) in in_time(at_once(asked)).await {
        let whole = match spelling.last_blank_line {
            true => expected.clone(),
            // An event without a blank line behind it is none; here nothing but `message_stop` is lost.
            false => expected.replace(" message_stop", ""),
        };
        assert_eq!(kinds, whole, "{size} {spelling:?}");
        assert_eq!(message.content_json(), content, "{size} {spelling:?}");
        assert_eq!(message.stop_reason(), plain.stop_reason());
        classes.add(format!("pieces of {size}"));
        classes.add(format!("lines {:?} blank {:?}", spelling.line_end, spelling.blank_line));
    }
    println!("{} cases: {classes:?}", cases.len());
    assert_eq!(cases.len(), PIECES.len() * spellings.len());
}

#[tokio::test]
async fn characters_that_come_byte_for_byte_are_whole_in_each_event() {
    let body = wire(&reply_of(&["é漢", "😀"]));
    let server = Server::start(vec![Reply::sse(body).in_pieces(1); 1 + Way::ALL.len()]).await;
    let client = server.client();
    for way in Way::ALL {
        assert_eq!(way.ask(&client, &hello()).await.unwrap().text(), "é漢😀", "{way:?}");
    }
    let mut stream = client.stream(&hello()).await.unwrap().text_stream();
    let mut pieces = Vec::new();
    while let Some(piece) = stream.next().await {
        pieces.push(piece.unwrap());
    }
    assert_eq!(pieces, ["é漢", "😀"]);
}

#[tokio::test]
async fn many_events_in_one_write_come_in_order() {
    let numbers: Vec<_> = (0..400).map(|number| format!("{number} ")).collect();
    let events = reply_of(&numbers.iter().map(String::as_str).collect::<Vec<_>>());
    let server = Server::start([Reply::sse(wire(&events))]).await;
    let mut stream = server.client().stream(&hello()).await.unwrap();
    let (got, error) = read(&mut stream).await;
    assert!(error.is_none());
    assert_eq!(kinds(&got), types(&events));
    assert_eq!(stream.final_message().await.unwrap().text(), numbers.concat());
}
