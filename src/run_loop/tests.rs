//! The loop's decisions, without runtime or server.

use serde_json::{Value, json};

use super::{Ended, Rules, RunErrorKind, RunLoop, Step};
use crate::messages::{ContentBlock, Conversation, Message, MessageParam, MessageRequest, RepairKind};
use crate::tool::{ToolError, ToolOutput};

fn rules() -> Rules {
    ["add", "fail"].into_iter().fold(Rules::new(), |rules, name| {
        rules.definition(&json!({"name": name, "input_schema": {"type": "object"}}).to_string()).handler(name)
    })
}

fn run_loop() -> RunLoop {
    RunLoop::new(MessageRequest::new("m", 100).user("go"), rules())
}

fn reply(content: &Value, stop_reason: impl Into<Value>) -> Message {
    let stop_reason: Value = stop_reason.into();
    let body = json!({
        "id": "msg", "content": content, "stop_reason": stop_reason,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    });
    Message::from_json(body.to_string()).unwrap()
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

fn call(id: &str, name: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": {"a": 1}})
}

fn send(run_loop: &mut RunLoop, reply: Message) -> Result<(), super::Stop> {
    match run_loop.step() {
        Step::Send(step) => step.complete(reply),
        other => panic!("not a request: {other:?}"),
    }
}

/// Answers every pending call with `ok`, and says which were pending.
fn answer(run_loop: &mut RunLoop) -> Vec<String> {
    let Step::Call(mut step) = run_loop.step() else { panic!("no calls") };
    let pending = step.pending();
    for call in &pending {
        assert!(step.start(call.ticket()));
        assert!(step.resolve(call.ticket(), Ok(ToolOutput::text("ok"))));
    }
    step.finish();
    pending.iter().map(|call| call.id().to_owned()).collect()
}

fn ended(run_loop: &mut RunLoop) -> Ended {
    match run_loop.step() {
        Step::Done(Ok(ended)) => ended.clone(),
        other => panic!("not ended: {other:?}"),
    }
}

fn stopped(run_loop: &mut RunLoop) -> super::Stop {
    match run_loop.step() {
        Step::Done(Err(stop)) => stop,
        other => panic!("not stopped: {other:?}"),
    }
}

fn messages(run_loop: &RunLoop) -> Value {
    serde_json::from_str(&run_loop.conversation().to_json()).unwrap()
}

fn results(conversation: &Conversation) -> Vec<(String, String, bool)> {
    let blocks = conversation.last().unwrap().content();
    blocks
        .iter()
        .map(|block| match block {
            ContentBlock::ToolResult(result) => (result.tool_use_id.clone(), result.text(), result.is_error),
            other => panic!("not a result: {other:?}"),
        })
        .collect()
}

#[test]
fn j05_results_are_one_message_in_the_order_of_the_calls() {
    let mut run_loop = run_loop();
    let content = json!([
        {"type": "text", "text": "both"}, call("t1", "add"), call("t2", "fail"), call("t3", "add"),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    ]);
    send(&mut run_loop, reply(&content, "tool_use")).unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!("no calls") };
    let pending = step.pending();
    for call in pending.iter().rev() {
        assert!(step.start(call.ticket()));
        let result = match call.name() {
            "fail" => Err(ToolError::new("no")),
            _ => Ok(ToolOutput::text(call.id())),
        };
        assert!(step.resolve(call.ticket(), result));
    }
    step.finish();
    assert_eq!(
        messages(&run_loop)[2],
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "t1"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": true},
            {"type": "tool_result", "tool_use_id": "t3", "content": "t3"},
        ]})
    );
    assert!(matches!(run_loop.step(), Step::Send(_)));
}

/// Every stop reason, with and without a call in the reply: only `tool_use` runs calls.
#[test]
fn j06_only_tool_use_runs_tools() {
    let reasons = [
        (json!("end_turn"), Some(Ended::EndTurn)),
        (json!("stop_sequence"), Some(Ended::StopSequence)),
        (json!("max_tokens"), Some(Ended::MaxTokens)),
        (json!("model_context_window_exceeded"), Some(Ended::ContextWindow)),
        (json!("refusal"), Some(Ended::Refusal)),
        (json!("compaction"), Some(Ended::Compaction)),
        (json!("brand_new"), Some(Ended::Other(Some("brand_new".into())))),
        (Value::Null, Some(Ended::Other(None))),
        (json!(7), Some(Ended::Other(None))),
        (json!("pause_turn"), None),
        (json!("tool_use"), None),
    ];
    let mut cases = 0;
    for (reason, expected) in &reasons {
        for content in [text("t"), json!([{"type": "text", "text": "t"}, call("t1", "add")])] {
            let mut run_loop = run_loop();
            send(&mut run_loop, reply(&content, reason.clone())).unwrap();
            let has_call = content.as_array().unwrap().len() == 2;
            match (reason.as_str(), run_loop.step()) {
                (Some("tool_use"), Step::Call(step)) => assert!(has_call && step.pending().len() == 1),
                (Some("tool_use"), Step::Done(Ok(ended))) => assert!(!has_call && *ended == Ended::NoCalls),
                (Some("pause_turn"), Step::Send(_)) => {}
                (_, Step::Done(Ok(ended))) => assert_eq!(Some(ended), expected.as_ref()),
                (reason, step) => panic!("{reason:?}: {step:?}"),
            }
            assert_eq!(run_loop.conversation().len(), 2, "{reason}");
            assert_eq!(run_loop.message().unwrap().text(), "t");
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 22);
}

#[test]
fn j07_an_empty_reply_is_not_kept_in_the_conversation() {
    let blank = json!([{"type": "text", "text": " \n"}]);
    for (content, reason) in [
        (json!([]), "end_turn"),
        (blank.clone(), "end_turn"),
        (json!([]), "stop_sequence"),
        (blank, "stop_sequence"),
    ] {
        let mut run_loop = run_loop();
        send(&mut run_loop, reply(&content, reason)).unwrap();
        assert_eq!(ended(&mut run_loop), Ended::Empty);
        assert!(!ended(&mut run_loop).is_complete());
        let run = run_loop.into_run().unwrap();
        assert_eq!(run.conversation().len(), 1);
        assert_eq!(run.into_request().user("next").check().map_err(|error| error.to_string()), Ok(()));
    }
}

#[test]
fn j08_the_loop_answers_unknown_names_and_unusable_inputs() {
    let mut run_loop = run_loop();
    let content = json!([
        call("t1", "no_such\ntool"),
        {"type": "tool_use", "id": "t2", "name": "add", "input": "text"},
        {"type": "tool_use", "id": "t3", "name": "add", "input": null},
        {"type": "tool_use", "id": "t4", "name": "add"},
        {"type": "tool_use", "id": "t5", "name": 7, "input": {}},
        {"type": "tool_use", "id": "t6", "name": "add", "input": {}, "toolset_name": "browser"},
        call("t7", "add"),
    ]);
    send(&mut run_loop, reply(&content, "tool_use")).unwrap();
    assert_eq!(answer(&mut run_loop), ["t7"]);
    let results = results(run_loop.conversation());
    assert_eq!(
        results.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>(),
        ["t1", "t2", "t3", "t4", "t5", "t6", "t7"]
    );
    assert!(results[..6].iter().all(|(_, _, is_error)| *is_error) && !results[6].2);
    assert_eq!(results[0].1, r"there is no tool named `no_such\ntool`; the tools are: add, fail");
    assert!(results[1].1.starts_with("the tool input is not an object: it is a string"), "{}", results[1].1);
    assert!(results[2].1.contains("it is null") && results[3].1.contains("it is missing"));
    assert_eq!(results[4].1, "the call names no tool; nothing ran");
    assert!(results[5].1.contains("there is no tool named `add`"));
    let replayed = &messages(&run_loop)[1]["content"];
    for index in 1..4 {
        assert_eq!(replayed[index]["input"], json!({}));
    }
    assert_eq!(messages(&run_loop)[2]["content"][5]["toolset_name"], "browser");
    assert_eq!(
        run_loop.repairs().iter().map(|repair| repair.kind).collect::<Vec<_>>(),
        [RepairKind::Input, RepairKind::Input, RepairKind::Input, RepairKind::Name]
    );
}

/// The cap counts replies, resumed pauses among them, whatever the replies are.
#[test]
fn j09_the_cap_counts_requests() {
    let mut cases = 0;
    for cap in 1..=4 {
        for pauses in [false, true] {
            let mut run_loop = RunLoop::new("go", rules().max_iterations(cap));
            for number in 1..=cap {
                let (content, reason) = match pauses {
                    true => (text("…"), "pause_turn"),
                    false => (json!([call(&format!("t{number}"), "add")]), "tool_use"),
                };
                send(&mut run_loop, reply(&content, reason)).unwrap();
                if number < cap && !pauses {
                    answer(&mut run_loop);
                }
            }
            let stop = stopped(&mut run_loop);
            assert_eq!((stop.kind(), stop.error_type()), (RunErrorKind::MaxIterations, "max_iterations"));
            assert_eq!(run_loop.iterations(), cap);
            assert_eq!(run_loop.usage().input_tokens, 10 * u64::from(cap));
            assert_eq!(messages(&run_loop).as_array().unwrap().last().unwrap()["role"], "assistant");
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert_eq!(Rules::new().max_iterations, 10);
    assert_eq!(stopped(&mut RunLoop::new("go", rules().max_iterations(0))).kind(), RunErrorKind::Request);
}

#[test]
fn j11_a_raised_cap_lets_the_loop_go_on_and_the_calls_run_once() {
    let mut run_loop = RunLoop::new("go", rules().max_iterations(1));
    send(&mut run_loop, reply(&json!([call("t1", "add")]), "tool_use")).unwrap();
    assert_eq!(stopped(&mut run_loop).kind(), RunErrorKind::MaxIterations);
    let handed_back = run_loop.clone().into_conversation();
    assert_eq!(handed_back.open_calls().len(), 1);

    run_loop.set_max_iterations(2);
    assert_eq!(answer(&mut run_loop), ["t1"]);
    send(&mut run_loop, reply(&text("done"), "end_turn")).unwrap();
    assert_eq!(ended(&mut run_loop), Ended::EndTurn);

    // A plain conversation does not say why it stopped, so a new run does not guess.
    let mut other = RunLoop::new(handed_back.clone(), rules());
    let stop = stopped(&mut other);
    assert_eq!(stop.kind(), RunErrorKind::Request);
    assert!(stop.client_error().unwrap().to_string().contains("t1"));

    // The user's next words answer it first, truly.
    let mut conversation = handed_back;
    conversation.push(MessageParam::user("stop that").unwrap()).unwrap();
    assert_eq!(conversation.len(), 4);
    let answers = conversation.get(2).unwrap().content();
    let ContentBlock::ToolResult(result) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(result.text(), "not executed: the run reached its limit of requests before this call");
    conversation.check().unwrap();
}

/// Why a call stayed open is told to the model, and one read from JSON claims no more than it
/// knows.
#[test]
fn open_calls_are_answered_with_the_true_reason() {
    for (reason, part) in [
        ("max_tokens", "cut off"),
        ("model_context_window_exceeded", "cut off"),
        ("refusal", "refused"),
        ("end_turn", "ended with end_turn"),
        ("brand_new", "ended with brand_new"),
    ] {
        let mut run_loop = run_loop();
        send(&mut run_loop, reply(&json!([call("t1", "add")]), reason)).unwrap();
        let mut conversation = run_loop.into_conversation();
        let stored = conversation.to_json();
        conversation.push(MessageParam::user("next").unwrap()).unwrap();
        let text = &conversation.get(2).unwrap().content();
        let ContentBlock::ToolResult(result) = &text[0] else { panic!() };
        assert!(
            result.is_error && result.text().starts_with("not executed: ") && result.text().contains(part)
        );

        let mut read = Conversation::from_json(&stored).unwrap();
        read.push(MessageParam::user("next").unwrap()).unwrap();
        let text = &read.get(2).unwrap().content();
        let ContentBlock::ToolResult(result) = &text[0] else { panic!() };
        assert_eq!(
            result.text(),
            "not executed as far as is known: the conversation went on without this call"
        );
    }
}

/// Replies of which nothing may be kept or run: they count, and nothing else changes.
#[test]
fn a_reply_with_unusable_ids_is_a_protocol_error() {
    let bad = [
        json!([{"type": "tool_use", "id": "", "name": "add", "input": {}}]),
        json!([{"type": "tool_use", "name": "add", "input": {}}]),
        json!([{"type": "tool_use", "id": 7, "name": "add", "input": {}}]),
        json!([call("x", "add"), call("x", "fail")]),
        json!([call("t1", "add")]),
    ];
    let mut cases = 0;
    for content in &bad {
        for reason in ["tool_use", "pause_turn", "end_turn", "max_tokens", "refusal"] {
            let mut run_loop = run_loop();
            send(&mut run_loop, reply(&json!([call("t1", "add")]), "tool_use")).unwrap();
            answer(&mut run_loop);
            let before = run_loop.conversation().clone();
            let stop = send(&mut run_loop, reply(content, reason)).unwrap_err();
            assert_eq!(stop.kind(), RunErrorKind::Protocol);
            assert_eq!(*run_loop.conversation(), before);
            assert_eq!((run_loop.iterations(), run_loop.usage().input_tokens), (2, 20));
            assert_eq!(run_loop.message().unwrap().stop_reason().unwrap().as_str(), reason);
            // The same request may be sent again.
            send(&mut run_loop, reply(&text("ok"), "end_turn")).unwrap();
            assert_eq!(ended(&mut run_loop), Ended::EndTurn);
            cases += 1;
        }
    }
    println!("{cases} cases");
}

#[test]
fn j16_a_paused_turn_goes_back_as_it_came_and_its_calls_wait_for_the_end_of_the_turn() {
    let mut run_loop = run_loop();
    let paused = r#"[ {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":1e2}}, {"type":"tool_use","id":"t1","name":"add","input":{}} ]"#;
    let first = format!(r#"{{"content":{paused},"stop_reason":"pause_turn"}}"#);
    send(&mut run_loop, Message::from_json(first).unwrap()).unwrap();
    assert!(matches!(run_loop.step(), Step::Send(_)));
    assert_eq!(
        run_loop.conversation().last().unwrap().json(),
        format!(r#"{{"role":"assistant","content":{paused}}}"#)
    );

    let rest = json!([{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}, call("t2", "add")]);
    send(&mut run_loop, reply(&rest, "tool_use")).unwrap();
    assert_eq!(answer(&mut run_loop), ["t1", "t2"]);
    assert_eq!(run_loop.conversation().len(), 4);
    run_loop.conversation().check().unwrap();
}

#[test]
fn compaction_ends_the_run_unless_told_to_go_on() {
    let mut run_loop = RunLoop::new("go", rules().resume_compaction(true));
    send(&mut run_loop, reply(&json!([{"type": "compaction", "content": "c"}]), "compaction")).unwrap();
    assert!(matches!(run_loop.step(), Step::Send(_)));
}

/// A container of the server is carried on; one that the caller named stays.
#[test]
fn the_container_is_carried() {
    let with = |container: &str| {
        let body = format!(
            r#"{{"content":[{{"type":"text","text":"t"}}],"stop_reason":"pause_turn","container":{container}}}"#
        );
        Message::from_json(body).unwrap()
    };
    for (own, sent) in [
        (None, json!("c2")),
        (Some(json!("mine")), json!("mine")),
        (Some(json!({"id": "mine", "skills": []})), json!({"id": "mine", "skills": []})),
        (
            Some(json!({"skills": [{"skill_id": "xlsx"}]})),
            json!({"skills": [{"skill_id": "xlsx"}], "id": "c2"}),
        ),
        (Some(json!({"id": null, "x": 1})), json!({"id": "c2", "x": 1})),
    ] {
        let request = MessageRequest::new("m", 100).user("go");
        let request = match &own {
            Some(own) => request.set("container", own),
            None => request,
        };
        let mut run_loop = RunLoop::new(request, rules());
        send(&mut run_loop, with(r#"{"id":"c1"}"#)).unwrap();
        send(&mut run_loop, with(r#"{"id":"c2"}"#)).unwrap();
        send(&mut run_loop, with("null")).unwrap();
        let Step::Send(step) = run_loop.step() else { panic!() };
        assert_eq!(body(step.request())["container"], sent);
        // The next run begins with it, and the server's newest id wins again.
        assert_eq!(body(&run_loop.into_request())["container"], sent);
    }
}

fn body(request: &MessageRequest) -> Value {
    let segments = request.segments().unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

#[test]
fn a_started_call_is_never_run_again_by_itself() {
    let content = json!([call("t1", "add"), call("t2", "add"), call("t3", "fail"), call("t4", "add")]);
    let mut run_loop = RunLoop::new("go", rules().idempotent("fail"));
    send(&mut run_loop, reply(&content, "tool_use")).unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!() };
    let tickets: Vec<_> = step.pending().iter().map(super::PendingCall::ticket).collect();
    assert!(step.start(tickets[0]) && step.resolve(tickets[0], Ok(ToolOutput::text("one"))));
    assert!(step.start(tickets[1]) && !step.start(tickets[1]));
    assert!(step.start(tickets[2]));
    // The driver is dropped here. Asking again answers nothing by itself.
    let Step::Call(step) = run_loop.step() else { panic!() };
    let pending: Vec<_> =
        step.pending().iter().map(|call| (call.id().to_owned(), call.was_started())).collect();
    assert_eq!(pending, [("t2".into(), true), ("t3".into(), true), ("t4".into(), false)]);

    // Handed back, the batch is told as it is.
    let texts: Vec<_> =
        results(&run_loop.clone().into_conversation()).into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(texts[0], "one");
    assert_eq!(texts[1], "interrupted while it ran, its effects are unknown");
    assert_eq!(texts[3], "not executed: this call was not started");

    let mut rerun = run_loop.clone();
    assert!(rerun.rerun("t2") && !rerun.rerun("t1") && !rerun.rerun("t4") && !rerun.rerun("nobody"));
    rerun.interrupt_started();
    assert_eq!(answer(&mut rerun), ["t2", "t3", "t4"]);

    run_loop.interrupt_started();
    assert_eq!(answer(&mut run_loop), ["t3", "t4"]);
    let texts: Vec<_> = results(run_loop.conversation()).into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(texts, ["one", "interrupted while it ran, its effects are unknown", "ok", "ok"]);
}

#[test]
fn a_ticket_of_another_turn_names_nothing() {
    let mut run_loop = run_loop();
    send(&mut run_loop, reply(&json!([call("t1", "add")]), "tool_use")).unwrap();
    let Step::Call(step) = run_loop.step() else { panic!() };
    let old = step.pending()[0].ticket();
    step.finish();
    send(&mut run_loop, reply(&json!([call("t2", "add")]), "tool_use")).unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!() };
    assert!(!step.start(old) && !step.resolve(old, Ok(ToolOutput::text("late"))));
    assert_eq!(step.pending().len(), 1);
}

/// What must not go out never becomes a step, and nothing of the request is lost.
#[test]
fn a_request_that_must_not_go_out_is_done_at_once() {
    let orphan = r#"[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t9","content":"x"}]}]"#;
    let open = r#"[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"add","input":{}}]}]"#;
    let hidden = r#"[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"add","input":{}}]},{"role":"assistant","content":"sorry"},{"role":"user","content":"go on"}]"#;
    let twice = r#"[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"add","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"add","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]}]"#;
    for (json, names) in [(orphan, "t9"), (open, "t1"), (hidden, "t1"), (twice, "t1")] {
        let conversation = Conversation::from_json(json).unwrap();
        let mut run_loop = RunLoop::new(MessageRequest::from(conversation), rules());
        let stop = stopped(&mut run_loop);
        assert_eq!(stop.kind(), RunErrorKind::Request);
        let text = stop.client_error().unwrap().to_string();
        assert!(text.contains(names) && text.contains("messages["), "{text}");
        assert_eq!(run_loop.into_conversation().to_json(), json);
    }

    let own = |definition: Value| MessageRequest::prompt("go").tool(definition);
    for (request, rules, part) in [
        (MessageRequest::prompt("go").user(" "), rules(), "request can't be sent"),
        (own(json!({"name": "add", "input_schema": {}})), rules(), "two tools are named `add`"),
        (own(json!({"name": "lonely", "input_schema": {}})), rules(), "no handler answers the tool `lonely`"),
        (own(json!({"name": "lonely", "type": "custom"})), rules(), "no handler answers the tool `lonely`"),
        (MessageRequest::prompt("go"), rules().definition("[]"), "must be a JSON object"),
        (MessageRequest::prompt("go"), rules().handler("add"), "two tools are named `add`"),
    ] {
        let stop = stopped(&mut RunLoop::new(request, rules));
        assert!(stop.chain().contains(part), "{}", stop.chain());
    }
    // A server tool needs no handler, and a toolset has no name.
    let request = own(json!({"type": "web_search_20260318", "name": "web_search"}))
        .tool(json!({"type": "browser_toolset_20260801"}));
    assert!(matches!(RunLoop::new(request, rules()).step(), Step::Send(_)));
}

/// Doubts that are not the loop's to decide go out.
#[test]
fn what_only_the_api_can_judge_is_sent() {
    let doubtful = [
        r#"[{"role":"assistant","content":"first"}]"#,
        r#"[{"role":"user","content":""}]"#,
        r#"[{"role":"robot","content":[{"type":"text","text":" "}]}]"#,
    ];
    for json in doubtful {
        let conversation = Conversation::from_json(json).unwrap();
        assert!(conversation.check().is_err());
        assert!(matches!(RunLoop::new(MessageRequest::from(conversation), rules()).step(), Step::Send(_)));
    }
}

/// The shapes that the API takes, whatever a tool gave.
#[test]
fn results_have_a_shape_that_the_api_takes() {
    let png = ContentBlock::image_base64("image/png", "iVBORw0KGgoAAAANSUhEUg==");
    let jpeg_as_png = ContentBlock::image_base64("image/png", "/9j/4AAQSkZJRgABAQ==");
    let search =
        ContentBlock::from_json(r#"{"type":"search_result","source":"s","title":"t","content":[]}"#).unwrap();
    let cases: Vec<(Result<ToolOutput, ToolError>, Value)> = vec![
        (Ok(ToolOutput::text("")), json!({"content": "(no output)"})),
        (Ok(ToolOutput::text(" \n\u{a0}")), json!({"content": "(no output)"})),
        (Ok(ToolOutput::blocks(vec![])), json!({"content": "(no output)"})),
        (Ok(ToolOutput::blocks(vec![ContentBlock::text(" ")])), json!({"content": "(no output)"})),
        (Ok(ToolOutput::text("a\u{0}\u{1b}[31m\u{7}")), json!({"content": "a\u{0}\u{1b}[31m\u{7}"})),
        (
            Ok(ToolOutput::blocks(vec![ContentBlock::text("a"), png.clone()])),
            json!({"content": [{"type": "text", "text": "a"}, serde_json::to_value(&png).unwrap()]}),
        ),
        (
            Ok(ToolOutput::blocks(vec![jpeg_as_png])),
            json!({"content": "the tool ran, but its result can't be sent: content[0].content[0]: an image is declared as image/png, but its bytes are image/jpeg", "is_error": true}),
        ),
        (
            Ok(ToolOutput::blocks(vec![ContentBlock::image_base64("image/png", "")])),
            json!({"content": "the tool ran, but its result can't be sent: content[0].content[0]: an image has no data", "is_error": true}),
        ),
        (
            Ok(ToolOutput::blocks(vec![ContentBlock::text("a"), search])),
            json!({"content": "the tool ran, but its result can't be sent: content[0]: search results may not stand beside other blocks", "is_error": true}),
        ),
        (
            Ok(ToolOutput::blocks(vec![ContentBlock::tool_result("x", "y")])),
            json!({"content": "the tool ran, but its result can't be sent: content[0].content[0]: a result may not hold a tool_result block", "is_error": true}),
        ),
        (Err(ToolError::new("")), json!({"content": "the tool failed without saying why", "is_error": true})),
        (
            Err(ToolError::blocks(vec![ContentBlock::text("boom"), png.clone()])),
            json!({"content": "boom\n[image left out: an error result holds text only]", "is_error": true}),
        ),
        (
            Err(ToolError::blocks(vec![png])),
            json!({"content": "[image left out: an error result holds text only]", "is_error": true}),
        ),
    ];
    for (result, expected) in cases {
        let shown = format!("{result:?}");
        let mut run_loop = run_loop();
        send(&mut run_loop, reply(&json!([call("t1", "add")]), "tool_use")).unwrap();
        let Step::Call(mut step) = run_loop.step() else { panic!() };
        let ticket = step.pending()[0].ticket();
        assert!(step.start(ticket) && step.resolve(ticket, result));
        assert!(!step.resolve(ticket, Ok(ToolOutput::text("second"))), "the first result stays");
        step.finish();
        let mut block = messages(&run_loop)[2]["content"][0].clone();
        let object = block.as_object_mut().unwrap();
        assert_eq!(object.remove("type").unwrap(), "tool_result");
        assert_eq!(object.remove("tool_use_id").unwrap(), "t1");
        assert_eq!(block, expected, "{shown}");
        run_loop.conversation().check().unwrap();
    }
}

/// Cut at every limit: between characters, beginning and end kept, the full size told.
#[test]
fn a_long_text_is_cut_between_characters() {
    let text = "aé漢😀".repeat(20);
    for limit in 0..text.len() + 2 {
        let cut = super::result::cut(text.clone(), limit);
        if limit >= text.len() {
            assert_eq!(cut, text);
            continue;
        }
        let (head, rest) = cut.split_once("\n[cut: the whole text has 200 bytes, ").unwrap();
        let (left_out, tail) = rest.split_once(" of them are left out here]\n").unwrap();
        assert!(text.starts_with(head) && text.ends_with(tail));
        assert!(head.len() + tail.len() <= limit + 1, "{limit}: {} + {}", head.len(), tail.len());
        assert_eq!(head.len() + tail.len() + left_out.parse::<usize>().unwrap(), text.len());
    }
}

#[test]
fn errors_and_runs_show_no_words_of_a_conversation() {
    let mut run_loop = RunLoop::new(MessageRequest::new("m", 1).system("SENTINEL").user("SENTINEL"), rules());
    let content = json!([{"type": "text", "text": "SENTINEL"},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": "SENTINEL"}}]);
    send(&mut run_loop, reply(&content, "tool_use")).unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!() };
    let shown = format!("{step:#?}");
    assert!(!shown.contains("SENTINEL"), "{shown}");
    let ticket = step.pending()[0].ticket();
    let result = Ok(ToolOutput::text("SENTINEL"));
    assert!(!format!("{result:?}").contains("SENTINEL"));
    assert!(step.resolve(ticket, result));
    step.finish();
    send(&mut run_loop, reply(&text("SENTINEL"), "end_turn")).unwrap();
    let shown = format!("{run_loop:#?} {:?} {:?}", run_loop.conversation(), run_loop.conversation().last());
    let run = run_loop.into_run().unwrap();
    let shown = format!("{shown} {run:#?}");
    let shown = format!("{shown} {:?}", run.into_request());
    assert!(!shown.contains("SENTINEL"), "{shown}");
}

/// A copy taken while calls are being answered does not say that they never ran.
#[test]
fn nothing_is_claimed_of_calls_that_were_begun() {
    for resolved in [false, true] {
        let mut run_loop = run_loop();
        send(&mut run_loop, reply(&json!([call("t1", "add"), call("t2", "add")]), "tool_use")).unwrap();
        let mut untouched = run_loop.conversation().clone();
        let Step::Call(mut step) = run_loop.step() else { panic!() };
        let ticket = step.pending()[0].ticket();
        assert!(step.start(ticket));
        if resolved {
            assert!(step.resolve(ticket, Ok(ToolOutput::text("moved the money"))));
        }
        let mut copy = run_loop.conversation().clone();
        copy.push(MessageParam::user("next").unwrap()).unwrap();
        let text = copy.get(2).unwrap().content();
        let ContentBlock::ToolResult(result) = &text[0] else { panic!() };
        assert_eq!(
            result.text(),
            "no result: the run was broken off, and it is unknown whether this call ran"
        );
        untouched.push(MessageParam::user("next").unwrap()).unwrap();
        let text = untouched.get(2).unwrap().content();
        let ContentBlock::ToolResult(result) = &text[0] else { panic!() };
        assert_eq!(result.text(), "not executed: this call was not started");
    }
}

/// A call that waits to be run again was started once, whatever becomes of it.
#[test]
fn a_call_that_may_run_again_is_not_forgotten() {
    for again in ["rerun", "idempotent"] {
        let mut run_loop = RunLoop::new("go", rules().idempotent("fail"));
        send(
            &mut run_loop,
            reply(&json!([call("t1", if again == "rerun" { "add" } else { "fail" })]), "tool_use"),
        )
        .unwrap();
        let Step::Call(mut step) = run_loop.step() else { panic!() };
        let ticket = step.pending()[0].ticket();
        assert!(step.start(ticket));
        match again {
            "rerun" => assert!(run_loop.rerun("t1")),
            _ => run_loop.interrupt_started(),
        }
        let Step::Call(step) = run_loop.step() else { panic!() };
        assert!(step.pending()[0].was_started());
        assert_eq!(
            results(&run_loop.into_conversation())[0].1,
            "interrupted while it ran, its effects are unknown"
        );
    }
}

/// Calls that no handler may see, however they are spelled.
#[test]
fn malformed_calls_reach_no_handler() {
    let rules =
        || rules().definition(r#"{"name":"unnamed","input_schema":{"type":"object"}}"#).handler("unnamed");
    for odd in [
        json!({"type": "tool_use", "id": "t1", "name": 7, "input": {}}),
        json!({"type": "tool_use", "id": "t1", "name": " ", "input": {}}),
        json!({"type": "tool_use", "id": "t1", "input": {}}),
        json!({"type": "tool_use", "id": "t1", "name": "add", "input": {}, "toolset_name": 7}),
        json!({"type": "tool_use", "id": "t1", "name": "add", "input": {}, "toolset_name": ["browser"]}),
        json!({"type": "tool_use", "id": "t1", "name": "add", "input": {}, "toolset_name": ""}),
    ] {
        let mut run_loop = RunLoop::new("go", rules());
        send(&mut run_loop, reply(&json!([odd]), "tool_use")).unwrap();
        assert_eq!(answer(&mut run_loop), [""; 0], "{odd}");
        assert!(results(run_loop.conversation())[0].2);
        assert_eq!(messages(&run_loop)[2]["content"][0].get("toolset_name"), odd.get("toolset_name"));
    }
}

#[test]
fn an_id_of_a_server_call_in_the_same_reply_is_not_new() {
    let content = json!([
        {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "x", "content": []},
        call("x", "add"),
    ]);
    let mut run_loop = run_loop();
    let stop = send(&mut run_loop, reply(&content, "tool_use")).unwrap_err();
    assert_eq!(stop.kind(), RunErrorKind::Protocol);
    assert_eq!(run_loop.conversation().len(), 1);
}

/// A model that takes over does not run what the one before it asked for.
#[test]
fn calls_before_a_fallback_are_answered_and_not_run() {
    let mut run_loop = run_loop();
    send(&mut run_loop, reply(&json!([call("t1", "add")]), "pause_turn")).unwrap();
    let rest = json!([{"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, call("t2", "add")]);
    send(&mut run_loop, reply(&rest, "tool_use")).unwrap();
    assert_eq!(answer(&mut run_loop), ["t2"]);
    let results = results(run_loop.conversation());
    assert_eq!(results[0].1, "not executed: another model took over after this call");
    assert_eq!(results[1].1, "ok");
}

/// Asking for a compaction again and again would cost and not end.
#[test]
fn a_compaction_that_the_request_asks_for_ends_the_run() {
    let request = MessageRequest::prompt("go").set("compaction", json!({"type": "summarize"}));
    let mut run_loop = RunLoop::new(request, rules().resume_compaction(true));
    send(&mut run_loop, reply(&json!([{"type": "compaction", "content": "c"}]), "compaction")).unwrap();
    assert_eq!(ended(&mut run_loop), Ended::Compaction);
}

/// A container can be dropped, with the one that the server gave.
#[test]
fn a_container_of_null_is_none() {
    let mut run_loop = run_loop();
    let text = r#"{"content":[{"type":"text","text":"t"}],"stop_reason":"end_turn","container":{"id":"c1"}}"#;
    send(&mut run_loop, Message::from_json(text).unwrap()).unwrap();
    let request = run_loop.into_request();
    assert_eq!(body(&request)["container"], "c1");
    assert_eq!(body(&request.set("container", Value::Null)).get("container"), None);
}

/// What a tool gives is limited as a whole, and loses what the API takes from a model alone.
#[test]
fn a_result_of_many_blocks_has_one_limit() {
    let mut run_loop = RunLoop::new("go", rules().max_result_bytes(100));
    send(&mut run_loop, reply(&json!([call("t1", "add")]), "tool_use")).unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!() };
    let ticket = step.pending()[0].ticket();
    let cited = r#"{"type":"text","text":"cited","citations":[{"type":"char_location"}]}"#;
    let mut blocks = vec![ContentBlock::from_json(cited).unwrap()];
    blocks.extend((0..3).map(|_| ContentBlock::text("x".repeat(90))));
    assert!(step.start(ticket) && step.resolve(ticket, Ok(ToolOutput::blocks(blocks))));
    step.finish();
    let content = &messages(&run_loop)[2]["content"][0]["content"];
    assert_eq!(content[0], json!({"type": "text", "text": "cited"}));
    assert_eq!(content[1]["text"], "x".repeat(90));
    let kept: usize = content
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"].as_str().unwrap())
        .map(|text| text.lines().filter(|line| line.starts_with('x')).map(str::len).sum::<usize>())
        .sum();
    assert_eq!(kept, 95);
}

/// What a reply spells is bounded and on one line where an error quotes it.
#[test]
fn an_error_quotes_ids_short_and_on_one_line() {
    for id in ["n".repeat(1_000_000), "t\u{1b}[31m\nFAKE".to_owned()] {
        let mut run_loop = run_loop();
        let stop =
            send(&mut run_loop, reply(&json!([call(&id, "add"), call(&id, "add")]), "tool_use")).unwrap_err();
        assert_eq!(stop.kind(), RunErrorKind::Protocol);
        let text = stop.chain();
        assert!(text.len() < 500 && !text.contains(char::is_control), "{} bytes", text.len());
    }
}
