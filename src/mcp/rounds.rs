//! What a server asks for before it answers a call.

use std::time::Duration;

use rmcp::model::{
    GetExtensions as _, GetMeta as _, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    NumberOrString, ServerRequest,
};
use rmcp::service::{Peer, RequestContext, RoleClient};
use tokio::time::sleep;

use super::handler::Handler;
use crate::messages::json;

/// The rounds of a call: in each the server asks, and the call is sent again with the answers.
#[derive(Default)]
pub(super) struct Rounds {
    count: u32,
}

/// What goes with the call in the next round.
pub(super) struct Round {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

impl Rounds {
    /// Answers one round; `Err` says why that is not possible.
    pub(super) async fn next(
        &mut self,
        asked: InputRequiredResult,
        handler: &Handler,
        peer: &Peer<RoleClient>,
    ) -> Result<Round, String> {
        self.count += 1;
        if self.count > MAX_ROUNDS {
            return Err(format!("asked for more input {MAX_ROUNDS} times"));
        }
        let requests = asked.input_requests.unwrap_or_default();
        if requests.is_empty() {
            // It wants to be asked again, and says nothing about when.
            sleep(PAUSE * self.count).await;
        }
        let responses = responses(requests, handler, peer).await?;
        Ok(Round { responses: (!responses.is_empty()).then_some(responses), state: asked.request_state })
    }
}

/// The answers to what was asked, one after another: they may be questions to a person.
async fn responses(
    requests: InputRequests,
    handler: &Handler,
    peer: &Peer<RoleClient>,
) -> Result<InputResponses, String> {
    if requests.len() > MAX_QUESTIONS {
        return Err(format!("asked for {} things at once, which is too much", requests.len()));
    }
    let mut responses = InputResponses::new();
    for (key, request) in requests {
        let mut request = match request {
            InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
            InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
            InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
            _ => return Err("asked for input of a kind that nobody here knows".to_owned()),
        };
        let mut context = RequestContext::new(NumberOrString::String(key.as_str().into()), peer.clone());
        context.meta = std::mem::take(request.get_meta_mut());
        context.extensions = std::mem::take(request.extensions_mut());
        let _cancelled_with_the_call = context.ct.clone().drop_guard();
        let answer = handler.handle_request(request, context).await.map_err(|error| {
            format!("asked for more input, which was refused: {} (code {})", error.message, error.code.0)
        })?;
        let answer = serde_json::from_str(json::to_raw(&answer).get())
            .map_err(|_| "asked for more input, and the answer is no JSON".to_owned())?;
        responses.insert(key, answer);
    }
    Ok(responses)
}

/// How often a server may ask during one call.
const MAX_ROUNDS: u32 = 10;

/// How much a server may ask for in one round.
const MAX_QUESTIONS: usize = 100;

/// A server that only wants to be asked again waits this much longer each time.
const PAUSE: Duration = Duration::from_millis(100);
