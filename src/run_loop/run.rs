//! What a finished run returns.

use std::fmt;

use super::stop::Ended;
use crate::messages::{Conversation, Message, MessageRequest, Repair, Usage};

/// A finished run.
///
/// A chat goes on with [`into_request`](Self::into_request):
///
/// ```no_run
/// # use agentloop::{Client, ToolRunner};
/// # use agentloop::MessageRequest;
/// # async fn chat(client: Client, runner: ToolRunner) -> Result<(), Box<dyn std::error::Error>> {
/// let mut request = MessageRequest::prompt("Hello.");
/// for line in std::io::stdin().lines() {
///     let run = runner.run(&client, request).await?;
///     println!("{}", run.text());
///     request = run.into_request().user(line?);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Run {
    pub(super) message: Message,
    pub(super) request: MessageRequest,
    pub(super) usage: Usage,
    pub(super) iterations: u32,
    pub(super) ended: Ended,
    pub(super) request_ids: Vec<String>,
    pub(super) repairs: Vec<Repair>,
}

impl Run {
    /// The final reply.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The text of the final reply.
    #[must_use]
    pub fn text(&self) -> String {
        self.message.text()
    }

    /// How the run ended. A refusal and a reply that was cut off end a run without an error.
    #[must_use]
    pub fn ended(&self) -> &Ended {
        &self.ended
    }

    /// The conversation. It ends with the final reply, unless nothing of that may be sent back.
    #[must_use]
    pub fn conversation(&self) -> &Conversation {
        self.request.messages()
    }

    /// The conversation, taken out of the run.
    #[must_use]
    pub fn into_conversation(self) -> Conversation {
        self.request.into_conversation()
    }

    /// The whole next request: what the first one set, the betas and the container, and the
    /// conversation. It holds the caller's own tool definitions; the runner adds its own again.
    pub fn into_request(self) -> MessageRequest {
        self.request
    }

    /// The tokens of all replies together.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// How many requests were made; retries inside one are not counted.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// The request ids of the replies, in order, where the server gave them.
    #[must_use]
    pub fn request_ids(&self) -> &[String] {
        &self.request_ids
    }

    /// What was changed of the replies so that they may be sent back.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }
}

/// Counts alone: a run holds somebody's words.
impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("ended", &self.ended)
            .field("iterations", &self.iterations)
            .field("usage", &self.usage)
            .field("request", &self.request)
            .field("request_ids", &self.request_ids)
            .field("repairs", &self.repairs)
            .finish()
    }
}
