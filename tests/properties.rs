//! Properties of the loop and of conversations over random scripts.

mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;

use agentloop::messages::Role;
use agentloop::run_loop::{Rules, RunErrorKind, RunLoop, Step};
use agentloop::testing::check_request;
use agentloop::{ContentBlock, Conversation, Message, MessageParam, MessageRequest};
use agentloop::{ToolError, ToolOutput};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const CASES: u32 = 1500;

/// How often each class of input came up. One that never did fails the test.
#[derive(Default)]
struct Classes(RefCell<BTreeMap<&'static str, usize>>);

impl Classes {
    fn saw(&self, class: &'static str) {
        *self.0.borrow_mut().entry(class).or_default() += 1;
    }

    fn require(&self, classes: &[&'static str]) {
        let seen = self.0.borrow();
        println!("{seen:?}");
        for class in classes {
            assert!(seen.contains_key(class), "no input of the class {class}: {seen:?}");
        }
    }
}

/// The same cases each time, printed if one fails.
fn runner() -> TestRunner {
    TestRunner::new_with_rng(
        Config { cases: CASES, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    )
}

/// A block of a reply. Ids are made unique when the reply is built, but for those that are not to be.
#[derive(Clone, Debug)]
enum Block {
    Text(&'static str),
    Thinking,
    Future,
    Call { name: &'static str, input: Value, programmatic: bool },
    Repeated,
    NoId,
    ServerCall,
    ServerPair,
}

fn block() -> impl Strategy<Value = Block> {
    let input = prop_oneof![
        6 => Just(json!({"a": 1})),
        1 => Just(json!("text")),
        1 => Just(Value::Null),
    ];
    let name = prop_oneof![8 => Just("add"), 2 => Just("fail"), 1 => Just("unknown"), 1 => Just("")];
    prop_oneof![
        4 => prop_oneof![3 => Just("hi"), 1 => Just(""), 1 => Just(" \n")].prop_map(Block::Text),
        2 => Just(Block::Thinking),
        1 => Just(Block::Future),
        8 => (name, input, proptest::bool::weighted(0.1))
            .prop_map(|(name, input, programmatic)| Block::Call { name, input, programmatic }),
        1 => Just(Block::ServerCall),
        1 => Just(Block::ServerPair),
    ]
}

/// One reply in about twenty breaks the rules.
fn content() -> impl Strategy<Value = Vec<Block>> {
    let bad = prop_oneof![Just(Block::Repeated), Just(Block::NoId)];
    (proptest::collection::vec(block(), 0..5), proptest::option::weighted(0.05, bad)).prop_map(
        |(mut blocks, bad)| {
            blocks.extend(bad);
            blocks
        },
    )
}

#[derive(Clone, Debug)]
struct Reply {
    content: Vec<Block>,
    reason: &'static str,
    /// Whether the step is dropped once before it is completed.
    dropped: bool,
    results: Vec<Outcome>,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Ok,
    Blank,
    Failed,
    Open,
    StartedAndOpen,
}

fn reply() -> impl Strategy<Value = Reply> {
    let reason = prop_oneof![
        12 => Just("tool_use"), 3 => Just("pause_turn"), 1 => Just("end_turn"), 1 => Just("max_tokens"),
        1 => Just("refusal"), 1 => Just("compaction"), 1 => Just("new_reason"),
    ];
    let outcome = prop_oneof![
        5 => Just(Outcome::Ok), 1 => Just(Outcome::Blank), 1 => Just(Outcome::Failed), 1 => Just(Outcome::Open), 1 => Just(Outcome::StartedAndOpen),
    ];
    (content(), reason, any::<bool>(), proptest::collection::vec(outcome, 5))
        .prop_map(|(content, reason, dropped, results)| Reply { content, reason, dropped, results })
}

/// The reply as the API would send it, with the ids that it uses.
fn build(reply: &Reply, next_id: &mut usize) -> Message {
    let mut id = |prefix: &str| {
        *next_id += 1;
        format!("{prefix}{next_id}")
    };
    let mut content = Vec::new();
    for block in &reply.content {
        match block {
            Block::Text(text) => content.push(json!({"type": "text", "text": text})),
            Block::Thinking => content.push(json!({"type": "thinking", "thinking": "", "signature": "S"})),
            Block::Future => content.push(json!({"type": "future_block", "x": [1]})),
            Block::Call { name, input, programmatic } => {
                let mut call = json!({"type": "tool_use", "id": id("t"), "name": name, "input": input});
                if *programmatic {
                    call["caller"] = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_0"});
                }
                content.push(call);
            }
            Block::Repeated => {
                content.push(json!({"type": "tool_use", "id": "t0", "name": "add", "input": {}}))
            }
            Block::NoId => content.push(json!({"type": "tool_use", "id": "", "name": "add", "input": {}})),
            Block::ServerCall => content.push(
                json!({"type": "server_tool_use", "id": id("srvtoolu_"), "name": "web_search", "input": {}}),
            ),
            Block::ServerPair => {
                let id = id("srvtoolu_");
                content.push(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}));
                content.push(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}));
            }
        }
    }
    let body = json!({"content": content, "stop_reason": reply.reason, "usage": {"input_tokens": 7, "output_tokens": 3}});
    Message::from_json(body.to_string()).unwrap()
}

fn definitions() -> Vec<Value> {
    vec![
        json!({"name": "add", "input_schema": {"type": "object"}}),
        json!({"name": "fail", "input_schema": {"type": "object"}}),
    ]
}

/// The request that a conversation would be sent with.
fn body(conversation: &Conversation) -> Value {
    let mut tools = definitions();
    tools.push(json!({"type": "web_search_20260318", "name": "web_search"}));
    tools.push(json!({"type": "code_execution_20260521", "name": "code_execution"}));
    json!({
        "model": "claude-opus-5-5", "max_tokens": 64, "container": "c1", "tools": tools,
        "messages": serde_json::from_str::<Value>(&conversation.to_json()).unwrap(),
    })
}

/// Answers the pending calls as the script says; calls left open are answered by `finish`.
fn answer(run_loop: &mut RunLoop, results: &[Outcome], classes: &Classes) {
    let Step::Call(mut step) = run_loop.step() else { panic!("no calls") };
    for (call, outcome) in step.pending().iter().zip(results.iter().cycle()) {
        let ticket = call.ticket();
        let result = match outcome {
            Outcome::Ok => Ok(ToolOutput::text("ok")),
            Outcome::Blank => Ok(ToolOutput::text(" ")),
            Outcome::Failed => Err(ToolError::new("failed")),
            Outcome::Open => continue,
            Outcome::StartedAndOpen => {
                classes.saw("a call started and left open");
                assert!(step.start(ticket));
                continue;
            }
        };
        assert!(step.start(ticket) && !step.start(ticket));
        assert!(step.resolve(ticket, result));
    }
    step.finish();
}

/// Each call of the turn before is answered exactly once, in order, in one message of results.
fn assert_answered(conversation: &Conversation) {
    let last = conversation.len() - 1;
    let answered: Vec<_> =
        support::results(conversation.get(last).unwrap()).into_iter().map(|(id, ..)| id).collect();
    let mut first = last;
    while first > 0 && conversation.get(first - 1).unwrap().role() == Role::Assistant {
        first -= 1;
    }
    let mut called = Vec::new();
    for index in first..last {
        let message: Value = serde_json::from_str(conversation.get(index).unwrap().json()).unwrap();
        let blocks = message["content"].as_array().unwrap();
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        called.extend(calls.map(|block| block["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(answered, called);
}

#[test]
fn a_run_keeps_its_promises_over_random_scripts() {
    let classes = Classes::default();
    let scripts = (proptest::collection::vec(reply(), 1..7), 1_u32..5, any::<bool>());
    runner()
        .run(&scripts, |(replies, cap, resume)| {
            let rules = definitions().iter().fold(Rules::new().max_iterations(cap).resume_compaction(resume), |rules, tool| {
                rules.definition(&tool.to_string()).handler(tool["name"].as_str().unwrap())
            });
            // The conversation has a call already, so that a reply can repeat its id.
            let history = json!([
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t0", "name": "add", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "1"}]},
            ]);
            let history = Conversation::from_json(&history.to_string()).unwrap();
            let mut run_loop = RunLoop::new(MessageRequest::from(history), rules);
            let (mut requests, mut next_id, mut paused, mut has_paused_part) = (0, 0, false, false);
            let mut script = replies.iter();
            loop {
                let before = run_loop.conversation().to_json();
                match run_loop.step() {
                    Step::Send(step) => {
                        let Some(reply) = script.next() else { break };
                        if reply.dropped {
                            classes.saw("a step dropped");
                            let _ = step;
                            prop_assert_eq!(&run_loop.conversation().to_json(), &before);
                        }
                        // What goes out is what the API takes, by two opinions that share no code.
                        // A paused turn that ends the request is for the server that paused it.
                        let conversation = run_loop.conversation().clone();
                        let ends_in_assistant = conversation.last().unwrap().role() == Role::Assistant;
                        prop_assert!(!ends_in_assistant || paused);
                        if !ends_in_assistant {
                            prop_assert_eq!(check_request(&body(&conversation), &[]), Ok(()));
                            prop_assert_eq!(conversation.check().map_err(|error| error.to_string()), Ok(()));
                        }
                        requests += 1;
                        let message = build(reply, &mut next_id);
                        let Step::Send(step) = run_loop.step() else { panic!("the step is another") };
                        if let Err(stop) = step.complete(message) {
                            classes.saw("protocol error");
                            prop_assert_eq!(stop.kind(), RunErrorKind::Protocol);
                            prop_assert_eq!(run_loop.conversation().to_json(), before);
                        } else {
                            paused = matches!(reply.reason, "pause_turn" | "compaction");
                            has_paused_part |= paused;
                        }
                        prop_assert_eq!(run_loop.iterations(), requests);
                        prop_assert_eq!(run_loop.usage().input_tokens, 7 * u64::from(requests));
                    }
                    Step::Call(step) => {
                        classes.saw(if has_paused_part { "calls after a pause" } else { "calls" });
                        let reply = replies.get(requests as usize - 1).unwrap();
                        if reply.dropped {
                            let _ = step;
                            prop_assert_eq!(&run_loop.conversation().to_json(), &before);
                        }
                        has_paused_part = false;
                        answer(&mut run_loop, &reply.results, &classes);
                        assert_answered(run_loop.conversation());
                        prop_assert!(run_loop.conversation().to_json().starts_with(before.trim_end_matches(']')));
                    }
                    Step::Done(Ok(ended)) => {
                        classes.saw(if ended.is_complete() { "ended complete" } else { "ended otherwise" });
                        break;
                    }
                    Step::Done(Err(stop)) => {
                        classes.saw("cap");
                        prop_assert_eq!((stop.kind(), requests), (RunErrorKind::MaxIterations, cap));
                        break;
                    }
                }
                prop_assert!(requests <= cap);
            }
            // What is handed back can be given to a user's next words, or says why not.
            let mut conversation = run_loop.into_conversation();
            match conversation.push(MessageParam::user("next").unwrap()) {
                Ok(()) => {
                    classes.saw("continued");
                    prop_assert_eq!(conversation.check().map_err(|error| error.to_string()), Ok(()));
                    prop_assert_eq!(check_request(&body(&conversation), &[]), Ok(()));
                }
                Err(error) => {
                    classes.saw("not to be continued with text");
                    prop_assert!(error.to_string().contains("pop_turn"), "{}", error);
                    while conversation.push(MessageParam::user("next").unwrap()).is_err() {
                        prop_assert!(!conversation.pop_turn().is_empty());
                    }
                    prop_assert_eq!(check_request(&body(&conversation), &[]), Ok(()));
                }
            }
            prop_assert_eq!(Conversation::from_json(&conversation.to_json()).unwrap().to_json(), conversation.to_json());
            Ok(())
        })
        .unwrap();
    classes.require(&[
        "a call started and left open",
        "a step dropped",
        "calls",
        "calls after a pause",
        "cap",
        "continued",
        "ended complete",
        "ended otherwise",
        "not to be continued with text",
        "protocol error",
    ]);
}

/// A message of a conversation from elsewhere, legal or not.
fn foreign_message() -> impl Strategy<Value = Value> {
    let id = || prop_oneof![Just("t1"), Just("t2"), Just("t3")];
    let call = id().prop_map(|id| json!({"type": "tool_use", "id": id, "name": "add", "input": {}}));
    let result = id().prop_map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "x"}));
    let error = id().prop_map(|id| json!({"type": "tool_result", "tool_use_id": id, "is_error": true, "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}));
    let text =
        prop_oneof![9 => Just("a"), 1 => Just(" ")].prop_map(|text| json!({"type": "text", "text": text}));
    let server =
        Just(json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}));
    let server_result =
        Just(json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}));
    let coded = Just(
        json!({"type": "tool_use", "id": "t4", "name": "add", "input": {}, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_9"}}),
    );
    let bad = Just(json!({"type": "tool_use", "id": "t5", "name": "add", "input": "text"}));
    let assistant = proptest::collection::vec(
        prop_oneof![8 => call, 6 => text.clone(), 1 => server, 1 => server_result, 1 => coded, 1 => bad],
        0..4,
    );
    let user = proptest::collection::vec(prop_oneof![8 => result, 1 => error, 4 => text], 0..4);
    prop_oneof![
        assistant.prop_map(|content| json!({"role": "assistant", "content": content})),
        user.prop_map(|content| json!({"role": "user", "content": content})),
        Just(json!({"role": "user", "content": "text"})),
    ]
}

/// `check` and the rules of the test server share no code. They judge alike, but for what only
/// the server can know: whether a request may end in an assistant turn.
#[test]
fn check_and_the_servers_rules_judge_alike() {
    let classes = Classes::default();
    let conversations = proptest::collection::vec(foreign_message(), 0..6);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 20_000, failure_persistence: None, max_global_rejects: 200_000, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    runner
        .run(&conversations, |mut messages| {
            messages.insert(0, json!({"role": "user", "content": "go"}));
            let json = Value::Array(messages).to_string();
            let mut conversation = Conversation::from_json(&json).unwrap();
            prop_assert_eq!(&conversation.to_json(), &json);
            let (ours, theirs) = (conversation.check(), check_request(&body(&conversation), &[]));
            let ends_in_assistant = conversation.last().unwrap().role() == Role::Assistant;
            match (&ours, &theirs) {
                (Ok(()), Ok(())) => classes.saw("both accept"),
                (Err(_), Err(_)) => classes.saw("both refuse"),
                (Ok(()), Err(text)) if ends_in_assistant && text.contains("prefill") => {
                    classes.saw("prefill")
                }
                (ours, theirs) => prop_assert!(false, "check: {ours:?}, server: {theirs:?}"),
            }

            // The repair leaves no call open and takes no real result away.
            let results = |conversation: &Conversation| -> Vec<String> {
                let blocks = conversation.iter().flat_map(|message| message.content());
                blocks
                    .filter_map(|block| match block {
                        ContentBlock::ToolResult(result) if !result.text().starts_with("not executed") => {
                            Some(result.tool_use_id)
                        }
                        _ => None,
                    })
                    .collect()
            };
            let before = results(&conversation);
            let was_fine = ours.is_ok();
            conversation.close_open_calls("lost");
            prop_assert_eq!(results(&conversation), before);
            prop_assert!(conversation.open_calls().is_empty() || ours.is_err());
            if was_fine {
                prop_assert_eq!(&conversation.to_json(), &json);
            } else if conversation.check().is_ok() {
                classes.saw("repaired");
                let ends_in_assistant = conversation.last().unwrap().role() == Role::Assistant;
                prop_assert!(ends_in_assistant || check_request(&body(&conversation), &[]).is_ok());
            }
            Ok(())
        })
        .unwrap();
    classes.require(&["both accept", "both refuse", "prefill", "repaired"]);
}

/// Whatever is pushed in whatever order: what the conversation takes is legal to send.
#[test]
fn what_push_takes_can_be_sent() {
    let classes = Classes::default();
    let messages = proptest::collection::vec(foreign_message(), 1..8);
    runner()
        .run(&messages, |messages| {
            let mut conversation = Conversation::new();
            conversation.push(MessageParam::user("go").unwrap()).unwrap();
            for message in messages {
                let before = conversation.to_json();
                match conversation.push(MessageParam::from_json(&message.to_string()).unwrap()) {
                    Ok(()) => classes.saw("taken"),
                    Err(_) => {
                        classes.saw("refused");
                        prop_assert_eq!(conversation.to_json(), before);
                    }
                }
                if conversation.open_calls().is_empty() {
                    prop_assert_eq!(conversation.check().map_err(|error| error.to_string()), Ok(()));
                    if conversation.last().unwrap().role() == Role::User {
                        classes.saw("sent");
                        prop_assert_eq!(check_request(&body(&conversation), &[]), Ok(()));
                    }
                }
            }
            Ok(())
        })
        .unwrap();
    classes.require(&["taken", "refused", "sent"]);
}
