//! The endpoint that counts tokens.

use super::call::Call;
use super::handle::{Client, Endpoint};
use crate::error::Result;
use crate::messages::request::Mode;
use crate::messages::{MessageRequest, TokenCount};

impl Client {
    /// Counts the input tokens of a request, without sending it to a model.
    ///
    /// The same request can be counted and sent. What this endpoint refuses, because it says
    /// nothing about the input, is left out: `max_tokens`, `stop_sequences`, `metadata`,
    /// `service_tier`, `inference_geo`, `diagnostics`, `fallbacks`, `fallback_credit_token`,
    /// `billing_policy`, and also `container`, whose skills are not counted, and `thread`: of a
    /// request that continues a thread only its own messages are counted. Everything else goes out
    /// as it is, and the API decides. It takes no files and URLs as sources, and no MCP servers. The
    /// count is an estimate; it costs nothing, and has rate limits of its own.
    ///
    /// A request lacks the tools of the [`ToolRunner`](crate::ToolRunner) that would run it. The
    /// runner's loop has the whole one, and asking for it sends nothing:
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use agentloop::run_loop::Step;
    /// use agentloop::testing::{Reply, Server};
    /// use agentloop::{MessageRequest, Tool, ToolRunner};
    /// use serde_json::json;
    ///
    /// let server = Server::start([Reply::token_count(14), Reply::token_count(380)]).await;
    /// let client = server.client();
    /// let now = Tool::new("now", "Tells the time", json!({"type": "object"})).handler(|(): ()| async { "12:00" });
    /// let runner = ToolRunner::new().tool(now);
    ///
    /// let request = MessageRequest::from("What time is it?");
    /// assert_eq!(client.count_tokens(&request).await?.input_tokens, 14);
    ///
    /// let mut run_loop = runner.run_loop(request);
    /// if let Step::Send(send) = run_loop.step() {
    ///     // With the tool.
    ///     assert_eq!(client.count_tokens(send.request()).await?.input_tokens, 380);
    /// }
    /// // And now it can run: `runner.drive(&client, &mut run_loop)`.
    /// # server.finish()?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), without its limit of tokens: the API judges the messages by the
    /// same rules. A reply without `input_tokens` is
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, which can be sent again.
    pub async fn count_tokens(&self, request: &MessageRequest) -> Result<TokenCount> {
        let segments = request.segments_with(&self.inner.defaults, Mode::Counted)?;
        let call = &Call::new(self, &COUNT_TOKENS, request, segments)?;
        call.run(|attempt| async move {
            let reply = call.send_for_json(&attempt).await?;
            TokenCount::from_json(&reply.text)
                .map_err(|error| error.with_response(reply.status, reply.headers))
        })
        .await
    }
}

const COUNT_TOKENS: Endpoint = Endpoint { path: "/v1/messages/count_tokens", operation: "count_tokens" };
