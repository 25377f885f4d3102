//! `@modelcontextprotocol/server-everything` asks in return, and tells how far it is.
#![expect(deprecated, reason = "servers still ask for replies of a model, and for roots")]

use agentloop::mcp::rmcp::ClientHandler;
use agentloop::mcp::rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, ListRootsResult, Root, SamplingMessage,
};
use agentloop::mcp::rmcp::service::{RequestContext, RoleClient};
use agentloop::mcp::{Connector, Server, Servers};
use agentloop::testing::{self, Reply};
use agentloop::{MessageRequest, RunEvent, ToolRunner};
use serde_json::json;

use crate::{Place, guarded, installed, results_of, shut_down};

/// Answers whatever it is asked.
struct Answers;

impl ClientHandler for Answers {
    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let accepted = ElicitResult::new(ElicitationAction::Accept);
        Ok(match question {
            ElicitRequestParams::FormElicitationParams { .. } => {
                accepted.with_content(json!({"name": "Ada"}))
            }
            _ => accepted,
        })
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("a reply"), "some-model".to_owned()))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///somewhere").with_name("here")]))
    }

    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        config.capabilities = serde_json::from_value(capabilities).unwrap();
        config
    }
}

#[tokio::test]
async fn m09_a_handler_answers_what_a_server_asks() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let mut command = place.command(servers.join("node_modules/.bin/mcp-server-everything"));
    command.arg("stdio");
    let server = guarded(Connector::new("everything").handler(Answers).spawn(command)).await.unwrap();
    // It lists some of its tools once it knows what the client can do.
    let server = guarded(server.refresh()).await.unwrap();
    let (_, set, _) = Servers::new([server.clone()]).into_tools();
    let calls = [
        ("trigger-elicitation-request", json!({})),
        ("trigger-url-elicitation", json!({"url": "https://example.com/a", "message": "Look"})),
        ("trigger-sampling-request", json!({"prompt": "Hi", "maxTokens": 9})),
        ("get-roots-list", json!({})),
    ];
    for (name, _) in &calls {
        assert!(set.iter().any(|tool| tool.mcp_name() == *name), "{name}: {set:?}");
    }
    let runner = ToolRunner::new().mcp(server.clone());
    let answers = results_of(&runner, &calls).await;
    assert!(answers[0].text().contains("Name: Ada"), "{answers:?}");
    assert!(answers[1].text().contains("accept"), "{answers:?}");
    assert!(answers[2].text().contains("a reply"), "{answers:?}");
    assert!(answers[3].text().contains("file:///somewhere"), "{answers:?}");
    drop(runner);
    shut_down(&place, server).await;
}

/// The last progress that a run tells of three steps.
pub(crate) async fn steps_of(server: Server) -> f64 {
    let call = ("toolu_1", "trigger-long-running-operation", json!({"duration": 0.9, "steps": 3}));
    let api = testing::Server::start([Reply::tool_use([call]), Reply::text("done")]).await;
    let mut events =
        ToolRunner::new().mcp(server).stream(&api.client(), MessageRequest::new("m", 100).user("go"));
    let mut last = 0.0;
    while let Some(event) = guarded(events.next()).await {
        if let RunEvent::ToolProgress { progress, .. } = event {
            assert_eq!(progress.total, Some(3.0));
            assert!(progress.progress > last, "in order, and perhaps not each");
            last = progress.progress;
        }
    }
    assert_eq!(events.finish().await.unwrap().text(), "done");
    last
}

#[tokio::test]
async fn progress_of_a_server_is_told() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let server = crate::of_npm(&place, &servers, "mcp-server-everything", &["stdio"]).await;
    let steps = steps_of(server.clone()).await;
    assert_eq!(steps, 3.0);
    shut_down(&place, server).await;
}
