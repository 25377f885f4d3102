//! The bytes of an event stream: its splits, line ends and spellings.

use agentloop::testing::{Reply, Server};
use agentloop::{Client, Message};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Classes, Way, call_block, close, end, hello, in_time, input, kinds, read, reply_of, stop, text, wire};

const CHARACTERS: &str = "é漢😀 \u{2028}\u{85}e\u{301}\u{fffd}";

/// A reply with text of two to four bytes a character and a call.
fn events() -> Vec<Value> {
    let mut events = reply_of(&[CHARACTERS, "\r\n"]);
    events.truncate(5);
    events.extend([call_block(1, "t1", "f"), input(1, r#"{"é":"#), input(1, r#""漢"}"#), close(1)]);
    events.extend([end("tool_use"), stop()]);
    events
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
        let mut body = String::new();
        let mut line = |text: &str| {
            body.push_str(text);
            body.push_str(self.line_end);
        };
        let space = if self.space { " " } else { "" };
        let mut ends = Vec::new();
        for event in events {
            if self.comments {
                line(":");
                line(": é keep-alive");
                line("id: 7");
                line("retry:1");
                line("unknown");
            }
            if self.name_of_event {
                line(&format!("event:{space}{}", event["type"].as_str().unwrap()));
            }
            match self.many_data_lines {
                true => {
                    serde_json::to_string_pretty(event).unwrap().lines().for_each(|part| line(&format!("data:{space}{part}")));
                }
                false => line(&format!("data:{space}{event}")),
            }
            ends.push(());
            line("\u{0}");
        }
        // The line that stood for the blank one.
        let marker = format!("\u{0}{}", self.line_end);
        let mut body = body.replace(&marker, self.blank_line);
        if !self.last_blank_line {
            body.truncate(body.len() - self.blank_line.len());
        }
        let bom = if self.bom { "\u{feff}" } else { "" };
        format!("{bom}{body}").into_bytes()
    }
}
