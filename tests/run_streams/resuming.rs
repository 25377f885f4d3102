//! What every error of a run hands back, in every way to run.

use agentloop::testing::{Gate, Script, Server};
use agentloop::{ErrorKind, MessageRequest, ToolRunner};

use crate::replies::{Break, Clients, run_all};
use crate::support::faults::{Fault, faults, good};
use crate::support::{Log, add, sent};
use crate::told::Way;

/// Every kind of error at every request of the run, in every way to run: the conversation is what
/// the failed request sent, giving it back sends that request again, and no tool runs twice.
#[tokio::test]
async fn j10_every_error_hands_back_what_was_sent_in_every_way_to_run() {
    let count = faults(&Gate::new()).len();
    let clients = Clients::new();
    let mut cases = Vec::new();
    for which in 0..count {
        for failing in 1..=4 {
            cases.extend(Way::ALL.map(|way| of_fault(clients.clone(), which, failing, way)));
        }
    }
    let cases = run_all(cases).await;
    println!("{cases} cases");
    assert_eq!(cases, count * 4 * 5);
}

async fn of_fault(clients: Clients, which: usize, failing: usize, way: Way) {
    let gate = Gate::new();
    let Fault { name, reply, kind, client: client_kind } = faults(&gate).swap_remove(which);
    let case = format!("{name}, request {failing}, {way:?}");
    let script = Script::from_fn(move |request| match request.number() {
        number if number < failing => good(number),
        number if number == failing => reply.clone(),
        number => good(number - 1),
    });
    let server = Server::start(script).await;
    let limit = if name == "silence" { Break::Stall } else { Break::Fin };
    let (client, log) = (clients.for_break(&server, limit, 0), Log::default());
    let runner = ToolRunner::new().tool(add(&log)).max_iterations(4);
    let request = MessageRequest::new("m", 64).system("be brief").user("go").beta("b-1");
    let (told, outcome) = way.run(&runner, &client, way.request(request)).await;
    let error = outcome.unwrap_err();

    assert_eq!(error.kind(), kind, "{case}: {error:?}");
    assert_eq!(error.client_error().map(agentloop::Error::kind), client_kind, "{case}: {error:?}");
    assert_eq!(server.request_count(), failing, "{case}");
    assert_eq!(error.conversation().to_json(), sent(&server, failing - 1), "{case}");
    assert_eq!(log.count("add"), failing - 1, "{case}");
    let counted = failing - 1 + usize::from(client_kind.is_none());
    assert_eq!(error.iterations() as usize, counted, "{case}");
    error.conversation().check().unwrap();
    // The turns before were told to their end, and the one that failed was not.
    let count = |name: &str| told.iter().filter(|event| event.get(name).is_some()).count();
    let is_told = Way::TOLD.contains(&way);
    for name in ["TurnDone", "ToolStarted", "ToolFinished"] {
        assert_eq!(count(name), if is_told { failing - 1 } else { 0 }, "{case}: {name}");
    }
    assert_eq!((count("Finished"), count("Retry"), count("Restart")), (0, 0, 0), "{case}");

    let (_, run) = way.run(&runner, &client, error.into_request()).await;
    let run = run.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    assert_eq!((run.text().as_str(), log.count("add")), ("done", 3), "{case}");
    let (one, two) = (&server.requests()[failing - 1], &server.requests()[failing]);
    assert_eq!(one.body(), two.body(), "{case}");
    assert_eq!(two.header("anthropic-beta"), Some("b-1"), "{case}");
    assert_eq!(one.json()["stream"].as_bool(), (way != Way::Plain).then_some(true), "{case}");
}

/// Nobody listens: the first request fails before it reaches a server.
#[tokio::test]
async fn j10_a_connection_that_is_refused_hands_the_conversation_back_in_every_way_to_run() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let builder = agentloop::Client::builder().base_url(&url).auth(agentloop::client::Auth::None).no_proxy();
    let client = builder.max_retries(0).build().unwrap();
    for way in Way::ALL {
        let runner = ToolRunner::new().tool(add(&Log::default()));
        let (told, outcome) = way.run(&runner, &client, way.request("go")).await;
        let error = outcome.unwrap_err();
        assert_eq!(error.client_error().unwrap().kind(), ErrorKind::Connect, "{way:?}: {error:?}");
        assert_eq!((told.len(), error.iterations()), (0, 0), "{way:?}");
        assert_eq!(error.conversation().to_json(), r#"[{"role":"user","content":"go"}]"#, "{way:?}");
    }
}
