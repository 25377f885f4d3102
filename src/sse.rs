//! Server-sent events: bytes in, frames out. No IO.
//!
//! A line ends with LF, CR or CRLF, a frame with an empty line, and what has no empty line behind
//! it is no frame (the HTML standard, section 9.2.6). The split of the bytes into pieces changes
//! nothing.

use std::ops::Range;

use memchr::{memchr, memchr2};

use crate::error::{Error, ErrorKind, Result};

/// One event as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The event's name, empty where it has none.
    pub(crate) event: &'a str,
    /// The `data` lines, joined by line feeds.
    pub(crate) data: &'a str,
}

/// Takes bytes in and gives frames out. Bytes are decoded as they come and line ends are looked for
/// once.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: String,
    /// The beginning of a character whose end is still to come.
    cut: Vec<u8>,
    /// Where the stream stops being UTF-8. What stands before that is given out first.
    broken: Option<u64>,
    /// How many bytes of the stream came before the buffer.
    offset: u64,
    /// Where the frame that is being read begins, the line, and what was not searched yet.
    frame: usize,
    line: usize,
    unseen: usize,
    /// The last line ended with a CR: an LF that follows belongs to it.
    after_cr: bool,
    fields: Fields,
    /// The `data` lines, where there are several.
    joined: String,
    cap: usize,
}

/// Where the fields of the current frame stand in the buffer.
#[derive(Debug, Default)]
struct Fields {
    event: Range<usize>,
    data: Range<usize>,
    data_lines: usize,
    /// The frame has ended, and was given out.
    given: bool,
}

/// The longest frame by default.
pub(crate) const DEFAULT_CAP: usize = 64 * 1024 * 1024;

const BOM: char = '\u{feff}';

impl Decoder {
    /// A decoder that takes frames up to `cap` bytes.
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            buffer: String::new(),
            cut: Vec::new(),
            broken: None,
            offset: 0,
            frame: 0,
            line: 0,
            unseen: 0,
            after_cr: false,
            fields: Fields::default(),
            joined: String::new(),
            cap,
        }
    }

    /// Takes the next piece of the stream in.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.forget_given();
        // What is moved was never moved before, or is the smaller half: linear in the input.
        if self.frame > self.buffer.len() / 2 {
            self.buffer.drain(..self.frame);
            self.offset += self.frame as u64;
            for position in [&mut self.line, &mut self.unseen] {
                *position -= self.frame;
            }
            for range in [&mut self.fields.event, &mut self.fields.data] {
                *range = range.start.saturating_sub(self.frame)..range.end.saturating_sub(self.frame);
            }
            self.frame = 0;
        }
        self.decode(bytes);
    }

    fn decode(&mut self, mut bytes: &[u8]) {
        // A character that was cut is put together byte for byte.
        while !self.cut.is_empty() && self.broken.is_none() {
            let Some((first, rest)) = bytes.split_first() else { return };
            bytes = rest;
            self.cut.push(*first);
            let cut = std::mem::take(&mut self.cut);
            self.decode_whole(&cut);
        }
        if self.broken.is_none() {
            self.decode_whole(bytes);
        }
    }

    fn decode_whole(&mut self, bytes: &[u8]) {
        let error = match simdutf8::compat::from_utf8(bytes) {
            Ok(text) => return self.buffer.push_str(text),
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        self.buffer.push_str(std::str::from_utf8(valid).unwrap_or_default());
        match error.error_len() {
            None => self.cut = rest.to_vec(),
            Some(_) => self.broken = Some(self.offset + self.buffer.len() as u64),
        }
    }

    /// The next frame, `None` until more bytes come. Frames without `data` are none.
    ///
    /// # Errors
    /// The stream is not UTF-8 from here on, or a frame is longer than the cap. The decoder is of
    /// no use then.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>> {
        self.forget_given();
        if self.offset == 0 && self.line == 0 && self.buffer.starts_with(BOM) {
            self.begin_frame_at(BOM.len_utf8());
        }
        while !self.fields.given {
            if self.after_cr && self.line < self.buffer.len() {
                self.after_cr = false;
                if self.buffer.as_bytes()[self.line] == b'\n' {
                    let is_between = self.frame == self.line;
                    self.line += 1;
                    if is_between {
                        self.begin_frame_at(self.line);
                    }
                }
            }
            self.unseen = self.unseen.max(self.line);
            let Some(length) = line_end(&self.buffer.as_bytes()[self.unseen..]) else {
                self.unseen = self.buffer.len();
                self.check_length(self.buffer.len())?;
                return match self.broken {
                    None => Ok(None),
                    Some(at) => {
                        let message = format!("byte {at} of the event stream is not UTF-8");
                        Err(Error::new(ErrorKind::Decode, message))
                    }
                };
            };
            let end = self.unseen + length;
            self.check_length(end)?;
            let line = self.line..end;
            self.after_cr = self.buffer.as_bytes()[end] == b'\r';
            self.line = end + 1;
            self.take_line(line);
        }
        let data = match self.fields.data_lines {
            1 => &self.buffer[self.fields.data.clone()],
            _ => &self.joined,
        };
        Ok(Some(Frame { event: &self.buffer[self.fields.event.clone()], data }))
    }

    /// Takes a finished line in.
    fn take_line(&mut self, line: Range<usize>) {
        let bytes = &self.buffer.as_bytes()[line.clone()];
        if bytes.is_empty() {
            match self.fields.data_lines {
                0 => self.begin_frame_at(self.line),
                _ => self.fields.given = true,
            }
            return;
        }
        let colon = match bytes {
            [b'd', b'a', b't', b'a', b':', ..] => Some(4),
            [b'e', b'v', b'e', b'n', b't', b':', ..] => Some(5),
            _ => memchr(b':', bytes),
        };
        let (name, value) = match colon {
            Some(colon) => {
                let space = usize::from(bytes.get(colon + 1) == Some(&b' '));
                (&bytes[..colon], line.start + colon + 1 + space..line.end)
            }
            None => (bytes, line.end..line.end),
        };
        match name {
            b"event" => self.fields.event = value,
            b"data" => {
                self.fields.data_lines += 1;
                match self.fields.data_lines {
                    1 => self.fields.data = value,
                    lines => {
                        if lines == 2 {
                            self.joined.clear();
                            self.joined.push_str(&self.buffer[self.fields.data.clone()]);
                        }
                        self.joined.push('\n');
                        self.joined.push_str(&self.buffer[value]);
                    }
                }
            }
            // A comment, `id`, `retry`, or a field that nobody knows.
            _ => {
                if self.fields.data_lines == 0 && self.fields.event.is_empty() {
                    self.begin_frame_at(self.line);
                }
            }
        }
    }

    fn begin_frame_at(&mut self, position: usize) {
        self.frame = position;
        self.line = position;
        self.unseen = self.unseen.max(position);
        self.fields = Fields::default();
    }

    fn forget_given(&mut self) {
        if self.fields.given {
            self.begin_frame_at(self.line);
        }
    }

    fn check_length(&self, end: usize) -> Result<()> {
        if end - self.frame <= self.cap {
            return Ok(());
        }
        let message = format!(
            "an event of the stream is longer than {} bytes (the limit of `max_event_bytes`)",
            self.cap
        );
        Err(Error::new(ErrorKind::TooLarge, message))
    }
}

/// Where the first line of these bytes ends, if it does. One line in three is empty.
fn line_end(bytes: &[u8]) -> Option<usize> {
    match bytes.first() {
        Some(b'\n' | b'\r') => Some(0),
        _ => memchr2(b'\n', b'\r', bytes),
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::frames as decode;

    type Frames = Vec<(String, String)>;

    fn frames(body: &str) -> Frames {
        let (frames, error) = decode([body.as_bytes()], DEFAULT_CAP);
        assert_eq!(error, None);
        for size in 1..body.len().min(9) {
            assert_eq!(decode(body.as_bytes().chunks(size), DEFAULT_CAP), (frames.clone(), None), "{size}");
        }
        frames
    }

    fn frame(event: &str, data: &str) -> (String, String) {
        (event.to_owned(), data.to_owned())
    }

    #[test]
    fn fields_and_their_spellings() {
        for (body, expected) in [
            ("event: a\ndata: 1\n\n", vec![frame("a", "1")]),
            ("event:a\ndata:1\n\n", vec![frame("a", "1")]),
            ("data:  1 \n\n", vec![frame("", " 1 ")]),
            ("data: 1\ndata\ndata: 2\ndata:\n\n", vec![frame("", "1\n\n2\n")]),
            ("data\n\n", vec![frame("", "")]),
            ("event: a\nevent: b\ndata: 1\n\n", vec![frame("b", "1")]),
            (": comment\nid: 7\nretry: 1\nnew: x\ndata: 1\n: more\n\n", vec![frame("", "1")]),
            ("event: a\n\ndata: 1\n\n", vec![frame("", "1")]),
            ("\n\n\n", vec![]),
            ("data: never ended\n", vec![]),
            ("data: 1\n\ndata: never ended", vec![frame("", "1")]),
            (" data: not a field\n\n", vec![]),
            ("data: a:b: c\n\n", vec![frame("", "a:b: c")]),
            ("data: \u{2028}é漢😀\u{85}\n\n", vec![frame("", "\u{2028}é漢😀\u{85}")]),
            ("\u{feff}data: 1\n\n", vec![frame("", "1")]),
            ("\u{feff}\u{feff}data: 1\n\n", vec![]),
            ("data: 1\n\n\u{feff}data: 2\n\n", vec![frame("", "1")]),
        ] {
            assert_eq!(frames(body), expected, "{body:?}");
        }
    }

    #[test]
    fn every_line_end_and_their_mixtures() {
        let ends = ["\n", "\r", "\r\n"];
        let mut cases = 0;
        for (a, b, c, d, e) in mixtures(&ends) {
            let body = format!("event: x{a}data: 1{b}{c}: c{d}data: 2{e}\n\n");
            // Two CRs, or a CR and a CRLF, are two line ends; a CR and an LF are one.
            let (found, error) = decode([body.as_bytes()], DEFAULT_CAP);
            assert_eq!(error, None);
            if !(b == "\r" && c == "\n") {
                assert_eq!(found, [frame("x", "1"), frame("", "2")], "{body:?}");
            }
            assert_eq!(frames(&body), found);
            cases += 1;
        }
        println!("{cases} mixtures of line ends");
        assert_eq!(cases, 243);
    }

    fn mixtures<'a>(
        ends: &'a [&'a str; 3],
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a str, &'a str, &'a str)> {
        (0..3_usize.pow(5))
            .map(move |n| (ends[n % 3], ends[n / 3 % 3], ends[n / 9 % 3], ends[n / 27 % 3], ends[n / 81]))
    }

    #[test]
    fn what_is_not_utf8_is_an_error_that_says_where() {
        for (line, at) in [(&b"data: a\xff"[..], 7), (b"event: \xe6\xbc", 7), (b": \xff", 2), (b"\xff", 0)] {
            let body = [b"data: 1\n\n", line, b"\n\n"].concat();
            let expected = format!("byte {} of the event stream is not UTF-8", 9 + at);
            let outcome = (vec![frame("", "1")], Some(expected));
            assert_eq!(decode([&body[..]], DEFAULT_CAP), outcome);
            assert_eq!(decode(body.chunks(1), DEFAULT_CAP), outcome);
        }
        // A character that is not there yet is no fault.
        assert_eq!(decode([&b"data: \xe6\xbc"[..]], DEFAULT_CAP), (vec![], None));
    }

    #[test]
    fn the_cap_counts_what_stands_before_the_end_of_a_frame() {
        // `data: ` and its line end are 7 bytes of the frame.
        for (length, fits) in [(93, true), (94, false)] {
            let body = format!("data: {}\n\ndata: 2\n\n", "x".repeat(length));
            for size in [1, 2, 50, body.len()] {
                let (frames, error) = decode(body.as_bytes().chunks(size), 100);
                assert_eq!((frames.len(), error.is_none()), if fits { (2, true) } else { (0, false) });
                let shown = error.unwrap_or_default();
                assert!(
                    fits || (shown.contains("100 bytes") && shown.contains("`max_event_bytes`")),
                    "{shown}"
                );
            }
        }
        // Comments without end are no frame.
        let comments = ": keep-alive\n".repeat(1000) + "data: 1\n\n";
        assert_eq!(decode(comments.as_bytes().chunks(7), 100), (vec![frame("", "1")], None));
        assert!(decode([&b"x".repeat(101)[..]], 100).1.is_some());
    }

    #[test]
    fn bytes_may_come_before_the_frames_are_taken() {
        let mut decoder = Decoder::new(DEFAULT_CAP);
        let mut numbers: Vec<i32> = Vec::new();
        for number in 0..100 {
            decoder.push(format!("data: {number}\n\ndata: {number}\n\n").as_bytes());
            numbers.push(decoder.next().unwrap().unwrap().data.parse().unwrap());
        }
        while let Some(frame) = decoder.next().unwrap() {
            numbers.push(frame.data.parse().unwrap());
        }
        assert_eq!(numbers, (0..100).flat_map(|number| [number; 2]).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_line_in_small_pieces_is_searched_and_moved_once() {
        let data = "x".repeat(4 << 20);
        let body = format!("data: 0\n\ndata: {data}\n\n");
        let mut decoder = Decoder::new(DEFAULT_CAP);
        let (mut frames, mut searched) = (0, 0);
        for piece in body.as_bytes().chunks(1000) {
            decoder.push(piece);
            let before = decoder.offset as usize + decoder.unseen;
            while decoder.next().unwrap().is_some() {
                frames += 1;
            }
            searched += decoder.offset as usize + decoder.unseen.max(decoder.line) - before;
        }
        assert_eq!(frames, 2);
        assert!(searched <= body.len(), "{searched} of {}", body.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Lines of every kind, line ends of every kind, and any split.
        #[test]
        fn any_split_of_any_body_gives_the_same_frames(
            parts in prop::collection::vec(prop::sample::select(vec![
                &b"data: "[..], b"data", b"event: a", b"event:", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r",
                b"x", b"{\"a\":1}", "é漢😀".as_bytes(), b"\xff", b"\xe6\xbc", b"\xef\xbb\xbf", b"\0", b"id: 1\n",
            ]), 0..40),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            cap in prop::sample::select(vec![8, 30, DEFAULT_CAP]),
        ) {
            let body = parts.concat();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &body[cut[0]..cut[1]]);
            let whole = decode([&body[..]], cap);
            prop_assert_eq!(&decode(pieces, cap), &whole);
            prop_assert_eq!(&decode(body.chunks(1), cap), &whole);
            CLASSES.count(&whole);
        }
    }

    use std::sync::atomic::{AtomicUsize, Ordering};

    /// How often each class of input came up.
    struct Classes {
        done: AtomicUsize,
        counts: [(&'static str, AtomicUsize); 5],
    }

    static CLASSES: Classes = Classes {
        done: AtomicUsize::new(0),
        counts: [
            ("no frame", AtomicUsize::new(0)),
            ("one frame", AtomicUsize::new(0)),
            ("several frames", AtomicUsize::new(0)),
            ("not UTF-8", AtomicUsize::new(0)),
            ("too long", AtomicUsize::new(0)),
        ],
    };

    impl Classes {
        fn count(&self, (frames, error): &(Frames, Option<String>)) {
            let class = match error {
                None => frames.len().min(2),
                Some(error) if error.contains("UTF-8") => 3,
                Some(_) => 4,
            };
            self.counts[class].1.fetch_add(1, Ordering::Relaxed);
            if self.done.fetch_add(1, Ordering::Relaxed) + 1 == 3000 {
                for (name, count) in &self.counts {
                    let count = count.load(Ordering::Relaxed);
                    println!("{name}: {count}");
                    assert!(count > 0, "no input was of the class `{name}`");
                }
            }
        }
    }
}
