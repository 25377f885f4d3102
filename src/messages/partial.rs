//! The JSON input of a tool call while its text still comes in.

use std::fmt;

use serde_json::{Map, Value};

use super::json_check::NumberPart;

/// The input of a tool call while it is streamed: what the text so far says for certain.
///
/// The API sends an input in pieces that are cut anywhere. [`push`](Self::push) takes one,
/// [`value`](Self::value) shows what can't change any more, and
/// [`unfinished_text`](Self::unfinished_text) the string that is being written. The text is read
/// once, however often one asks.
///
/// This is for showing a call early; a tool runs with the input of the whole reply. Text that is
/// no JSON is not repaired. Unlike in `serde_json`, half of a surrogate pair is read as U+FFFD.
///
/// # Examples
///
/// ```
/// use agentloop::messages::PartialInput;
/// use serde_json::json;
///
/// let mut input = PartialInput::new();
/// input.push(r#"{"path": "a.rs", "lines": [1, 2"#);
/// // It may still be 20.
/// assert_eq!(input.value(), Some(&json!({"path": "a.rs", "lines": [1]})));
///
/// input.push(r#"0], "text": "fn ma"#);
/// assert_eq!(input.value(), Some(&json!({"path": "a.rs", "lines": [1, 20]})));
/// assert_eq!(input.unfinished_text(), Some("fn ma"));
///
/// input.push(r#"in() {}" 1"#);
/// assert!(input.is_broken() && input.value().is_none());
/// ```
#[derive(Clone, Default)]
pub struct PartialInput {
    text: String,
    reader: Reader,
}

impl PartialInput {
    /// An input of which nothing came yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next piece of the text. Nothing is read yet.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// The text so far, as it came.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the text so far says for certain; only a later [`push`](Self::push) changes it.
    ///
    /// Open arrays and objects are shown with what is finished in them: a string by its closing
    /// quote, a number by what follows it. Of fields with the same name the last one counts, and
    /// the order of the others may change then.
    ///
    /// `None` while nothing is certain, and for good once the text [is broken](Self::is_broken).
    /// An input should be an object, but any value is shown as what it is.
    #[must_use]
    pub fn value(&mut self) -> Option<&Value> {
        self.catch_up().tree.root.as_ref()
    }

    /// The string, if the text ends within one, decoded as far as it is certain: without an
    /// escape or a surrogate pair that breaks off. `None` within the name of a field.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut input = agentloop::messages::PartialInput::new();
    /// let mut screen = String::new();
    /// for piece in [r#"{"text": "one\"#, r#"ntwo \ud83d"#, r"\ude00"] {
    ///     input.push(piece);
    ///     let text = input.unfinished_text().unwrap_or_default();
    ///     screen.push_str(&text[screen.len()..]);
    /// }
    /// assert_eq!(screen, "one\ntwo 😀");
    /// ```
    #[must_use]
    pub fn unfinished_text(&mut self) -> Option<&str> {
        let reader = self.catch_up();
        matches!(reader.state, State::Text).then_some(&reader.decoded)
    }

    /// True once nothing that may follow makes the text JSON, as `serde_json` reads it. A number
    /// that is too large for it breaks the text where the number ends.
    #[must_use]
    pub fn is_broken(&mut self) -> bool {
        matches!(self.catch_up().state, State::Broken)
    }

    /// Reads what was pushed since the last call.
    fn catch_up(&mut self) -> &Reader {
        if self.reader.read(&self.text).is_none() {
            self.reader = Reader { state: State::Broken, ..Reader::default() };
        }
        &self.reader
    }
}

/// Says nothing of the text, which may repeat what a user wrote.
impl fmt::Debug for PartialInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = matches!(self.reader.state, State::Broken);
        f.debug_struct("PartialInput").field("bytes", &self.text.len()).field("broken", &broken).finish()
    }
}

/// A state machine over the text. `None` from any step means that the text is broken.
#[derive(Clone, Default)]
struct Reader {
    /// How much of the text was read.
    at: usize,
    state: State,
    tree: Tree,
    /// The beginning of the string that is being read.
    decoded: String,
}

/// What the text breaks off in, or what may follow.
#[derive(Clone, Copy, Default)]
enum State {
    Broken,
    Colon,
    /// The quote of a field's name.
    Key,
    KeyOrEnd,
    Name,
    /// A comma, or the end of a container.
    Next,
    /// Where the number began, and how far it is written.
    Number(usize, NumberPart),
    Text,
    #[default]
    Value,
    ValueOrEnd,
}

impl Reader {
    fn read(&mut self, text: &str) -> Option<()> {
        while self.at < text.len() {
            let (state, len) = self.step(text, text.get(self.at..)?)?;
            #[cfg(test)]
            tests::count(len.max(1));
            self.state = state;
            self.at += len;
            // But for a number, which ends before what follows it, this is a word or an escape
            // that breaks off. It is short enough to be looked at again.
            if len == 0 && !matches!(state, State::Next) {
                break;
            }
        }
        Some(())
    }

    /// The next state, and how many bytes lead to it.
    fn step(&mut self, text: &str, rest: &str) -> Option<(State, usize)> {
        use State::{Colon, Key, KeyOrEnd, Name, Next, Number, Text, Value as Item, ValueOrEnd};
        let next = match (self.state, *rest.as_bytes().first()?) {
            (State::Broken, _) => return None,
            (Name | Text, _) => return self.text(rest),
            (Number(start, part), byte) => match part.then(byte) {
                Some(part) => Number(start, part),
                None => return self.scalar(text.get(start..self.at)?, 0),
            },
            (state, b' ' | b'\t' | b'\n' | b'\r') => state,
            (Key | KeyOrEnd, b'"') => Name,
            (Colon, b':') => Item,
            (Item | ValueOrEnd, byte) if byte != b']' => match byte {
                b'"' => Text,
                b'[' => self.tree.put(Value::Array(Vec::new())).map(|()| ValueOrEnd)?,
                b'{' => self.tree.put(Value::Object(Map::new())).map(|()| KeyOrEnd)?,
                b't' => return self.word("true", rest),
                b'f' => return self.word("false", rest),
                b'n' => return self.word("null", rest),
                _ => Number(self.at, NumberPart::Start.then(byte)?),
            },
            (KeyOrEnd | ValueOrEnd | Next, byte) => match (self.tree.innermost()?, byte) {
                (Value::Object(_), b'}') | (Value::Array(_), b']') => {
                    self.tree.depth -= 1;
                    Next
                }
                (Value::Object(_), b',') if matches!(self.state, Next) => Key,
                (Value::Array(_), b',') => Item,
                _ => return None,
            },
            _ => return None,
        };
        Some((next, 1))
    }

    fn word(&mut self, word: &str, rest: &str) -> Option<(State, usize)> {
        if rest.starts_with(word) {
            return self.scalar(word, word.len());
        }
        word.starts_with(rest).then_some((self.state, 0))
    }

    /// A word or a number, of which `len` bytes were not read yet.
    fn scalar(&mut self, token: &str, len: usize) -> Option<(State, usize)> {
        self.tree.put(serde_json::from_str(token).ok()?)?;
        Some((State::Next, len))
    }

    fn text(&mut self, rest: &str) -> Option<(State, usize)> {
        let plain = rest.split(|char| matches!(char, '"' | '\\' | ..' ')).next()?;
        if !plain.is_empty() {
            self.decoded.push_str(plain);
            return Some((self.state, plain.len()));
        }
        match rest.as_bytes() {
            [b'\\', ..] => {
                let (char, len) = escape(rest.as_bytes())?;
                self.decoded.extend(char);
                Some((self.state, len))
            }
            [b'"', ..] if matches!(self.state, State::Name) => {
                self.tree.name = Some(std::mem::take(&mut self.decoded));
                Some((State::Colon, 1))
            }
            [b'"', ..] => {
                self.tree.put(Value::String(std::mem::take(&mut self.decoded))).map(|()| (State::Next, 1))
            }
            _ => None,
        }
    }
}

/// The character that an escape stands for, and how long the escape is; no character and no
/// length if it breaks off.
fn escape(text: &[u8]) -> Option<(Option<char>, usize)> {
    let char = match text.get(1) {
        None => return Some((None, 0)),
        Some(b'u') => return unicode(text),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(char @ (b'"' | b'\\' | b'/')) => char::from(*char),
        Some(_) => return None,
    };
    Some((Some(char), 2))
}

fn unicode(text: &[u8]) -> Option<(Option<char>, usize)> {
    // The number behind `\u`; inside, `None` if it breaks off.
    let unit = |escape: &[u8]| {
        let digits = escape.get(2..escape.len().min(6))?;
        let unit = digits.iter().try_fold(0, |unit, d| Some(unit << 4 | char::from(*d).to_digit(16)?))?;
        Some((digits.len() == 4).then_some(unit))
    };
    let Some(first) = unit(text)? else { return Some((None, 0)) };
    let pair = |low| char::from_u32(0x10000 + ((first & 0x3ff) << 10 | low & 0x3ff));
    let single = (Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)), 6);
    Some(match (first, text.get(6..)?) {
        (0xd800..=0xdbff, [] | [b'\\']) => (None, 0),
        (0xd800..=0xdbff, second @ [b'\\', b'u', ..]) => match unit(second)? {
            None => (None, 0),
            Some(low @ 0xdc00..=0xdfff) => (pair(low), 12),
            Some(_) => single,
        },
        _ => single,
    })
}

/// The value so far. What is open in it is always the last entry of what is open around it.
#[derive(Clone, Default)]
struct Tree {
    root: Option<Value>,
    /// How many containers are open.
    depth: usize,
    /// The name of the field whose value comes next.
    name: Option<String>,
}

impl Tree {
    fn innermost(&mut self) -> Option<&mut Value> {
        let mut value = self.root.as_mut().filter(|_| self.depth > 0)?;
        for _ in 1..self.depth {
            value = match value {
                Value::Array(items) => items.last_mut()?,
                Value::Object(fields) => fields.values_mut().next_back()?,
                _ => return None,
            };
        }
        Some(value)
    }

    /// Adds an item, or the field that was named. A container is open from then on.
    fn put(&mut self, value: Value) -> Option<()> {
        let name = self.name.take();
        let opens = value.is_array() || value.is_object();
        match self.innermost() {
            Some(Value::Array(items)) => items.push(value),
            Some(Value::Object(fields)) => {
                let name = name?;
                if opens {
                    // An earlier field of this name would keep its place.
                    fields.swap_remove(&name);
                }
                fields.insert(name, value);
            }
            _ => self.root = Some(value),
        }
        self.depth += usize::from(opens);
        // As `serde_json` counts: what reaches 128 is refused.
        (self.depth < 128).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use serde_json::json;

    use super::super::json;
    use super::*;

    thread_local! {
        /// The bytes that this test's thread has read.
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count(bytes: usize) {
        READ.set(READ.get() + bytes);
    }

    fn of(text: &str) -> PartialInput {
        let mut input = PartialInput::new();
        input.push(text);
        input
    }

    /// All that an input says.
    fn answers(input: &mut PartialInput) -> (Option<Value>, Option<String>, bool) {
        let value = input.value().cloned();
        (value, input.unfinished_text().map(str::to_owned), input.is_broken())
    }

    /// What serde_json reads, with halves of surrogate pairs as this crate reads them.
    fn parse(text: &str) -> serde_json::Result<Value> {
        serde_json::from_str(json::with_whole_pairs(text).as_deref().unwrap_or(text))
    }

    /// Every prefix that ends at a character.
    fn prefixes(text: &str) -> impl Iterator<Item = &str> {
        (0..=text.len()).filter_map(|end| text.get(..end))
    }

    #[test]
    fn shows_what_is_certain() {
        for (text, shown, unfinished) in [
            ("", None, None),
            (" ", None, None),
            ("{", Some(json!({})), None),
            (r#"{"a"#, Some(json!({})), None),
            (r#"{"a""#, Some(json!({})), None),
            (r#"{"a":"#, Some(json!({})), None),
            (r#"{"a":1"#, Some(json!({})), None),
            (r#"{"a":1 "#, Some(json!({"a": 1})), None),
            (r#"{"a":1,"#, Some(json!({"a": 1})), None),
            (r#"{"a":1}"#, Some(json!({"a": 1})), None),
            (r#"{"a":tru"#, Some(json!({})), None),
            (r#"{"a":true"#, Some(json!({"a": true})), None),
            (r#"{"a":[1,"#, Some(json!({"a": [1]})), None),
            (r#"{"a":[1,{"b":null,"c":[["#, Some(json!({"a": [1, {"b": null, "c": [[]]}]})), None),
            (
                r#"{"a":[1,{"b":null,"c":[[]]},2],"d":"#,
                Some(json!({"a": [1, {"b": null, "c": [[]]}, 2]})),
                None,
            ),
            (r#"{"a":"x"#, Some(json!({})), Some("x")),
            (r#"{"a":""#, Some(json!({})), Some("")),
            (r#"{"a":"x""#, Some(json!({"a": "x"})), None),
            ("12", None, None),
            ("12 ", Some(json!(12)), None),
            ("-", None, None),
            ("1.5e+3\n", parse("1.5e+3").ok(), None),
            ("null", Some(Value::Null), None),
            (r#""é\n\"\\\/\u00e9"#, None, Some("é\n\"\\/é")),
            (r#""a\"#, None, Some("a")),
            (r#""a\u00e"#, None, Some("a")),
            (r#""a\ud83d"#, None, Some("a")),
            (r#""a\ud83d\ude0"#, None, Some("a")),
            (r#""a\ud83d\ude00"#, None, Some("a😀")),
            (r#""a\ud83d\ud83d"#, None, Some("a\u{fffd}")),
            (r#""a\ud83d\n"#, None, Some("a\u{fffd}\n")),
            (r#""a\ude00b\ud83d""#, Some(json!("a\u{fffd}b\u{fffd}")), None),
            // The last of a name wins once it shows.
            (r#"{"a":1,"a":2"#, Some(json!({"a": 1})), None),
            (r#"{"a":1,"a":2,"#, Some(json!({"a": 2})), None),
            (r#"{"a":1,"b":[3],"c":3,"a":[[2,"#, Some(json!({"a": [[2]], "b": [3], "c": 3})), None),
            (r#"{"a":[1],"b":3,"a":{"x":1},"a":5}"#, Some(json!({"a": 5, "b": 3})), None),
        ] {
            assert_eq!(answers(&mut of(text)), (shown, unfinished.map(str::to_owned), false), "{text}");
            assert_eq!(of(text).text(), text);
        }
    }

    #[test]
    fn what_is_no_json_is_broken_for_good() {
        for text in [
            "}",
            "]",
            ",",
            ":",
            "x",
            "'",
            "/",
            "#",
            "tru ",
            "truex",
            "nul]",
            "N",
            "I",
            "T",
            "+",
            ".",
            "01",
            "-01",
            "1.]",
            "1.e",
            "1e]",
            "1e+-",
            "-x",
            "1..",
            "1 2",
            "0x",
            "[1 2",
            "[1,]",
            "[,",
            "{,",
            r#"{"a"]"#,
            r#"{"a" 1"#,
            r#"{"a","#,
            r#"{"a"::"#,
            r#"{"a":,"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1]"#,
            r#"{"a":1:"#,
            "[1}",
            "{]",
            "[}",
            "{1",
            "{a",
            "{'",
            "{} {",
            "{},",
            "[]]",
            "{}}",
            "[1]/",
            "\"a\" \"",
            "\"\n",
            "\"\u{0}",
            "\"\\x",
            "\"\\u00g",
            "\"\\ud83d\\u00g",
            "\"\\ud83d\\x",
            "\"\\ué",
            "\u{feff}",
            "[1,\u{a0}",
            "\u{c}",
        ] {
            let mut input = of(text);
            for more in ["", " ", "]", "{}"] {
                input.push(more);
                assert_eq!(answers(&mut input), (None, None, true), "{text}");
            }
            // It breaks there, not before.
            let (last, _) = text.char_indices().next_back().unwrap();
            assert!(!of(&text[..last]).is_broken(), "{text}");
        }
    }

    #[test]
    fn nesting_is_limited_as_in_serde_json() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            for depth in [1, 2, 126, 127, 128, 129, 300] {
                let text = format!("{}0{}", open.repeat(depth), close.repeat(depth));
                let mut input = of(&text);
                assert_eq!(input.value(), parse(&text).ok().as_ref(), "{depth}");
                assert_eq!(input.is_broken(), depth > 127, "{depth}");
            }
        }
    }

    #[test]
    fn debug_says_nothing_of_the_text() {
        let mut input = of(r#"{"secret"#);
        assert_eq!(format!("{input:?}"), "PartialInput { bytes: 8, broken: false }");
        input.push("\n");
        assert!(input.is_broken());
        assert_eq!(format!("{input:?}"), "PartialInput { bytes: 9, broken: true }");
    }

    /// Each text is read once, also if one asks after every small piece.
    #[test]
    fn the_work_grows_with_the_text_alone() {
        let keys: String = (0..20_000).map(|key| format!(r#""k{key}":[{key}],"#)).collect();
        let long = "k".repeat(20_000);
        for (name, text, piece) in [
            (
                "a long text",
                format!(r#"{{"a":"{}"}}"#, "plain \\n\\u00e9\\ud83d\\ude00 text".repeat(100_000)),
                7,
            ),
            ("a long plain text", format!(r#"{{"a":"{}"}}"#, "x".repeat(4_000_000)), 16),
            ("many keys", format!("{{{keys}\"\":0}}"), 1),
            ("the same keys again", format!("{{{keys}{keys}\"\":0}}"), 3),
            ("a long key", format!(r#"{{"{long}":[{}0]}}"#, "1,".repeat(20_000)), 1),
            ("a long key again", format!(r#"{{"{long}":1,"{long}":[{}0]}}"#, "1,".repeat(20_000)), 1),
            ("a long number", format!("[{}]", "7".repeat(100_000)), 1),
            ("words", format!("[{}null]", "true,false,".repeat(20_000)), 1),
            ("deep", format!("{}{}0{}", "[".repeat(127), "0,".repeat(20_000), "]".repeat(127)), 1),
            (
                "to and fro",
                format!("[{}0]", format!("{}{},", "[".repeat(126), "]".repeat(126)).repeat(400)),
                1,
            ),
            ("white space, then broken", format!("{}x{}", " ".repeat(20_000), "y".repeat(20_000)), 1),
        ] {
            READ.set(0);
            let mut input = PartialInput::new();
            for piece in text.as_bytes().chunks(piece) {
                input.push(std::str::from_utf8(piece).unwrap());
                let _ = (input.value().is_some(), input.is_broken(), input.unfinished_text().map(str::len));
            }
            let work = READ.get();
            println!("{name}: {work} bytes read of {}", text.len());
            // Escapes and words that break off are looked at again, three times per piece here.
            assert!(
                work >= text.len() / 2 && work <= 2 * text.len() + 3 * text.len().div_ceil(piece),
                "{name}"
            );
            assert_eq!(input.value(), parse(&text).ok().as_ref(), "{name}");
        }
    }

    /// How often each class of input came up. One that never did fails the test.
    #[derive(Default)]
    struct Classes(std::cell::RefCell<BTreeMap<&'static str, usize>>);

    impl Classes {
        fn saw(&self, class: &'static str) {
            self.saw_if(true, class);
        }

        fn saw_if(&self, is: bool, class: &'static str) {
            *self.0.borrow_mut().entry(class).or_default() += usize::from(is);
        }

        fn require_all(&self) {
            println!("{:?}", self.0.borrow());
            assert!(self.0.borrow().values().all(|seen| *seen > 0), "{:?}", self.0.borrow());
        }
    }

    fn runner(cases: u32) -> TestRunner {
        TestRunner::new_with_rng(
            Config { cases, failure_persistence: None, ..Config::default() },
            TestRng::deterministic_rng(RngAlgorithm::ChaCha),
        )
    }

    /// A value as it is written.
    #[derive(Clone, Debug)]
    enum Node {
        /// A word, a number or a string.
        Scalar(String),
        Array(Vec<(String, Self)>),
        Object(Vec<(String, String, Self)>),
    }

    fn space() -> impl Strategy<Value = String> {
        prop_oneof![3 => Just(String::new()), 1 => "[ \t\r\n]{1,2}"]
    }

    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-c é漢😀/]{1,3}",
            1 => r#"\\["\\/bfnrt]"#,
            1 => r"\\u00[0-9a-fA-F]{2}",
            1 => r"\\u[0-9a-cA-C][0-9a-f]{3}",
            1 => r"\\ud83d\\ude0[0-9a-f]",
            1 => r"\\u[dD][89abAB][0-9a-f]{2}",
            1 => r"\\u[dD][c-fC-F][0-9a-f]{2}",
            1 => Just(r"\\ud83d".to_owned()),
        ];
        proptest::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
    }

    fn node() -> impl Strategy<Value = Node> {
        let number = prop_oneof![
            2 => "-?(0|[1-9][0-9]{0,3})",
            1 => "-?(0|[1-9][0-9]{0,2})(\\.[0-9]{1,3})?[eE][+-]?[0-9]{1,2}",
            1 => "-?[1-9][0-9]{24}(\\.[0-9]{25})?",
            1 => "0\\.[0-9]{1,20}",
        ];
        let word = prop_oneof![Just("true"), Just("false"), Just("null")];
        let scalar = prop_oneof![2 => number, 2 => text(), 1 => word.prop_map(str::to_owned)];
        let name = prop_oneof![4 => "\"[ab]{1,2}\"", 1 => Just("\"\\u0061\"".to_owned()), 1 => text()];
        scalar.prop_map(Node::Scalar).prop_recursive(4, 24, 5, move |node| {
            prop_oneof![
                proptest::collection::vec((space(), node.clone()), 0..5).prop_map(Node::Array),
                proptest::collection::vec((space(), name.clone(), node), 0..5).prop_map(Node::Object),
            ]
        })
    }

    /// A text, and what shows from which length on. This knows the whole value, so it needs no
    /// parser of what is incomplete.
    #[derive(Default)]
    struct Script {
        text: String,
        marks: Vec<(usize, Value)>,
        repeated_names: bool,
    }

    impl Script {
        fn write(&mut self, node: &Node, show: &dyn Fn(Value) -> Value) -> Value {
            match node {
                Node::Scalar(text) => {
                    self.text += text;
                    let value = parse(text).unwrap();
                    self.marks.push((self.text.len() + usize::from(value.is_number()), show(value.clone())));
                    value
                }
                Node::Array(nodes) => {
                    let mut items = Vec::new();
                    self.text += "[";
                    self.marks.push((self.text.len(), show(json!(items))));
                    for (index, (space, node)) in nodes.iter().enumerate() {
                        self.text += if index > 0 { "," } else { "" };
                        self.text += space;
                        let item = self.write(node, &|item| {
                            let items = items.iter().cloned().chain([item]).collect();
                            show(Value::Array(items))
                        });
                        items.push(item);
                        self.text += space;
                    }
                    self.text += "]";
                    Value::Array(items)
                }
                Node::Object(nodes) => {
                    let mut fields = Map::new();
                    self.text += "{";
                    self.marks.push((self.text.len(), show(json!(fields))));
                    for (index, (space, name, node)) in nodes.iter().enumerate() {
                        self.text += if index > 0 { "," } else { "" };
                        self.text += &format!("{space}{name}{space}:{space}");
                        let name = parse(name).unwrap().as_str().unwrap().to_owned();
                        self.repeated_names |= fields.contains_key(&name);
                        let value = self.write(node, &|value| {
                            let mut fields = fields.clone();
                            fields.insert(name.clone(), value);
                            show(Value::Object(fields))
                        });
                        fields.insert(name, value);
                        self.text += space;
                    }
                    self.text += "}";
                    Value::Object(fields)
                }
            }
        }

        fn shown(&self, len: usize) -> Option<&Value> {
            self.marks.iter().rev().find(|(from, _)| *from <= len).map(|(_, value)| value)
        }
    }

    /// What `unfinished_text` should be, the slow way: the longest beginning that is a string
    /// once it is closed, and that does not end with a half which may become a pair.
    fn unfinished(text: &str) -> Option<String> {
        let mut open = None;
        let mut escaped = false;
        for (at, byte) in text.bytes().enumerate() {
            match (open, byte) {
                (Some(_), _) if escaped => escaped = false,
                (Some(_), b'\\') => escaped = true,
                (Some(_), b'"') => open = None,
                (None, b'"') => open = Some(at),
                _ => {}
            }
        }
        let open = open?;
        let closed = |text: &str| parse(&format!("{text}\"")).ok()?.as_str().map(str::to_owned);
        // A name stands behind a brace, or behind a comma in an object.
        let is_name = parse_any(&format!("{}\"a\":0", &text[..open]));
        let text = &text[open..];
        (!is_name).then(|| {
            let ends = (1..=text.len()).rev().filter_map(|end| text.get(..end));
            let certain = |certain: &&str| {
                let half = certain.len().checked_sub(6).and_then(|at| certain.split_at_checked(at));
                let may_be_half = text.len() < certain.len() + 6
                    && half.is_some_and(|(before, half)| {
                        let unit =
                            half.strip_prefix("\\u").and_then(|half| u16::from_str_radix(half, 16).ok());
                        matches!(unit, Some(0xd800..=0xdbff)) && closed(before).is_some()
                    });
                closed(certain).is_some() && !may_be_half
            };
            ends.filter(certain).find_map(closed).unwrap()
        })
    }

    /// The brackets that are open at the end, closed.
    fn closers(text: &str) -> String {
        let mut open = Vec::new();
        let (mut within, mut escaped) = (false, false);
        for char in text.chars() {
            match char {
                _ if escaped => escaped = false,
                '\\' if within => escaped = true,
                '"' => within = !within,
                '{' if !within => open.push('}'),
                '[' if !within => open.push(']'),
                '}' | ']' if !within => _ = open.pop(),
                _ => {}
            }
        }
        open.iter().rev().collect()
    }

    /// Whether the text is JSON once its brackets are closed.
    fn parse_any(text: &str) -> bool {
        parse(&(text.to_owned() + &closers(text))).is_ok()
    }

    /// Whether anything that may follow makes the text JSON, by trying all that may be needed.
    fn may_become_json(text: &str) -> bool {
        let escapes = ["", "n", "\\", "u0000", "0000", "000", "00", "0"];
        let words = ["true", "rue", "ue", "e", "false", "alse", "lse", "se", "null", "ull", "ll", "l"];
        let strings = escapes.iter().flat_map(|end| [format!("{end}\""), format!("{end}\":0")]);
        let others = ["", "0", ":0", "\"\":0"].iter().chain(&words).map(|end| (*end).to_owned());
        others.chain(strings).any(|end| parse_any(&format!("{text}{end}")))
    }

    #[test]
    fn every_prefix_of_json_shows_what_is_certain() {
        /// Whether what is shown is a part of the whole.
        fn is_within(shown: &Value, whole: &Value) -> bool {
            match (shown, whole) {
                (Value::Array(shown), Value::Array(whole)) => {
                    shown.len() <= whole.len()
                        && shown.iter().zip(whole).all(|(shown, whole)| is_within(shown, whole))
                }
                (Value::Object(shown), Value::Object(whole)) => shown
                    .iter()
                    .all(|(name, shown)| whole.get(name).is_some_and(|whole| is_within(shown, whole))),
                _ => shown == whole,
            }
        }

        let classes = Classes::default();
        let prefixes_seen = Cell::new(0);
        let asks = proptest::collection::vec(any::<u8>(), 16);
        runner(1500)
            .run(&(node(), space(), asks), |(node, space, asks)| {
                let mut script = Script { text: space.clone(), ..Script::default() };
                let whole = script.write(&node, &|value| value);
                script.text += if space.is_empty() { "\n" } else { &space };
                let text = script.text.as_str();
                prop_assert_eq!(&parse(text).unwrap(), &whole);
                for (class, sign) in [
                    ("escape", "\\n"),
                    ("pair", "\\ude00"),
                    ("unicode", "漢"),
                    ("nesting", "[["),
                    ("white space", ": "),
                    ("exponent", "e+"),
                    ("empty object", "{}"),
                    ("empty array", "[]"),
                ] {
                    classes.saw_if(text.contains(sign), class);
                }
                classes.saw_if(json::with_whole_pairs(text).is_some(), "half a pair");
                let digits = text.split(|char: char| !char.is_ascii_digit()).map(str::len).max();
                classes.saw_if(digits >= Some(25), "25 digits");
                classes.saw_if(script.repeated_names, "repeated name");
                classes.saw_if(whole.is_number(), "number at the root");

                // Asked after every character, asked at random, and asked once.
                let (mut steady, mut random) = (PartialInput::new(), PartialInput::new());
                for prefix in prefixes(text) {
                    prefixes_seen.set(prefixes_seen.get() + 1);
                    let piece = &prefix[steady.text().len()..];
                    steady.push(piece);
                    random.push(piece);
                    let ask = asks[prefix.len() % asks.len()];
                    if ask & 1 == 1 {
                        let _ = random.value();
                    }
                    if ask & 2 == 2 {
                        let _ = random.unfinished_text();
                    }
                    let shown = script.shown(prefix.len());
                    let unfinished = unfinished(prefix);
                    classes.saw_if(unfinished.as_ref().is_some_and(|text| text.len() > 4), "unfinished text");
                    let mut inputs = vec![of(prefix), steady.clone()];
                    if ask & 4 == 4 {
                        inputs.push(random.clone());
                    }
                    for input in &mut inputs {
                        prop_assert_eq!(input.value(), shown, "{}", prefix);
                        prop_assert_eq!(input.unfinished_text(), unfinished.as_deref(), "{}", prefix);
                        prop_assert!(!input.is_broken(), "{}", prefix);
                        prop_assert_eq!(input.value(), shown, "{}", prefix);
                    }
                    if !script.repeated_names {
                        prop_assert!(shown.is_none_or(|shown| is_within(shown, &whole)), "{}", prefix);
                    }
                }
                prop_assert_eq!(steady.value(), Some(&whole));
                prop_assert_eq!(random.value(), Some(&whole));
                // Where no name stands twice the order is that of the text, too.
                if !script.repeated_names {
                    prop_assert_eq!(steady.value().unwrap().to_string(), whole.to_string());
                }
                classes.saw("case");
                Ok(())
            })
            .unwrap();
        println!("{} prefixes", prefixes_seen.get());
        classes.require_all();
    }

    #[test]
    fn what_serde_json_refuses_is_broken_and_nothing_else_is() {
        let classes = Classes::default();
        let piece = prop_oneof![
            3 => "[\\[\\]{},:\"\\\\]", 2 => "[0-9.eE+-]",
            1 => "0[0-9.e]", 1 => "[ntfulrase/* x]", 1 => "[\u{0}\n\t\u{a0}é]",
            1 => Just("\\ud83d".to_owned()), 1 => Just("\\u".to_owned()), 1 => Just(String::new()),
            1 => Just("\"a\"".to_owned()), 1 => Just("null".to_owned()), 1 => Just(",".to_owned()),
        ];
        let changes = proptest::collection::vec((any::<prop::sample::Index>(), 0..3usize, piece), 0..4);
        runner(3000)
            .run(&(node(), changes, 0..4usize), |(node, changes, cut)| {
                let mut script = Script::default();
                script.write(&node, &|value| value);
                let mut chars: Vec<char> = script.text.chars().collect();
                for (at, removed, piece) in changes {
                    let at = at.index(chars.len() + 1);
                    let end = chars.len().min(at + removed);
                    chars.splice(at..end, piece.chars());
                }
                if cut == 0 {
                    chars.truncate(chars.len() / 2);
                }
                let text: String = chars.into_iter().collect();
                let parsed = parse(&text);
                if parsed.as_ref().is_err_and(|error| error.to_string().contains("out of range")) {
                    // Only the end of such a number breaks the text, so trying what may follow is no measure.
                    classes.saw("number out of range");
                    prop_assert!(of(&(text + " ")).is_broken());
                    return Ok(());
                }

                let mut steady = PartialInput::new();
                let mut intact = "";
                let mut broken = None;
                for prefix in prefixes(&text) {
                    steady.push(&prefix[steady.text().len()..]);
                    prop_assert_eq!(answers(&mut steady), answers(&mut of(prefix)), "{}", prefix);
                    if steady.is_broken() {
                        prop_assert_eq!(steady.value(), None);
                        broken = broken.or(Some(prefix));
                    } else {
                        prop_assert_eq!(broken, None);
                        intact = prefix;
                    }
                }
                prop_assert!(may_become_json(intact), "{}", intact);
                if let Some(broken) = broken {
                    prop_assert!(!may_become_json(broken), "{}", broken);
                    prop_assert!(parsed.is_err(), "{}", text);
                    classes.saw("broken");
                    return Ok(());
                }
                match parsed {
                    Ok(value) => {
                        steady.push(" ");
                        prop_assert_eq!(steady.value(), Some(&value), "{}", text);
                        classes.saw("whole");
                    }
                    Err(_) => {
                        // Without a bracket to close, nothing shows before the text is whole.
                        prop_assert!(!closers(&text).is_empty() || steady.value().is_none(), "{}", text);
                        classes.saw("not complete");
                    }
                }
                Ok(())
            })
            .unwrap();
        for class in ["broken", "whole", "not complete"] {
            classes.saw_if(false, class);
        }
        classes.require_all();
    }

    #[test]
    fn numbers_are_those_of_serde_json() {
        for number in [
            "0",
            "-0",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775808",
            "-9223372036854775809",
            "1e2",
            "1E-2",
            "1.10",
            "0.1e+1",
            "123456789012345678901234567890.12345",
            "1e400",
            "-1e400",
            "1e-400",
            "0e999",
        ] {
            let text = format!("[{number}]");
            let mut input = of(&text);
            assert_eq!(input.value(), parse(&text).ok().as_ref(), "{number}");
            assert_eq!(input.is_broken(), parse(&text).is_err(), "{number}");
            assert_eq!(of(&format!("[{number}")).value(), Some(&json!([])));
        }
    }
}
