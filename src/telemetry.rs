//! The spans of the crate, and what they tell.
//!
//! Names and fields follow OpenTelemetry's conventions for generative AI. No field holds what a
//! user, a model or a tool said.

use reqwest::Url;
use tracing::field::{Empty, debug};
use tracing::{Span, info_span};

use crate::error::Error;
use crate::messages::{Message, Usage};
use crate::run_loop::{PendingCall, RunLoop, Stop};

/// A run, while it is driven.
pub(crate) fn run() -> Span {
    info_span!(
        "invoke_agent",
        "otel.kind" = "internal",
        "gen_ai.operation.name" = "invoke_agent",
        "gen_ai.provider.name" = PROVIDER,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.usage.cache_creation.input_tokens" = Empty,
        "agentloop.iterations" = Empty,
        "error.type" = Empty,
    )
}

/// What a run came to, as far as it was driven.
pub(crate) fn run_ended(span: &Span, run_loop: &RunLoop, stop: Option<&Stop>) {
    record_usage(span, run_loop.usage());
    span.record("agentloop.iterations", run_loop.iterations());
    if let Some(stop) = stop {
        span.record("error.type", stop.error_type());
    }
}

/// A turn of a run: a request, and the calls of its reply.
pub(crate) fn turn(number: u32) -> Span {
    info_span!("turn", "otel.kind" = "internal", "agentloop.turn" = number)
}

/// A call to an endpoint, all its attempts and waits together; a stream until its end.
pub(crate) fn request(name: &str, operation: &str, model: &str, url: &Url) -> Span {
    info_span!(
        "request",
        "otel.name" = name,
        "otel.kind" = "client",
        "gen_ai.operation.name" = operation,
        "gen_ai.provider.name" = PROVIDER,
        "gen_ai.request.model" = model,
        "server.address" = url.host_str(),
        "server.port" = url.port_or_known_default(),
        "gen_ai.response.id" = Empty,
        "gen_ai.response.model" = Empty,
        "gen_ai.response.finish_reasons" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.usage.cache_creation.input_tokens" = Empty,
        "request_id" = Empty,
        "error.type" = Empty,
    )
}

/// The reply that a request got.
pub(crate) fn replied(span: &Span, message: &Message) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.response.id", message.id());
    span.record("gen_ai.response.model", message.model());
    if let Some(reason) = message.stop_reason() {
        span.record("gen_ai.response.finish_reasons", debug([reason.as_str()]));
    }
    span.record("request_id", message.request_id());
    record_usage(span, message.usage());
}

/// One attempt of a request. `resends` counts the attempts before it.
pub(crate) fn attempt(path: &str, resends: u32) -> Span {
    info_span!(
        "attempt",
        "otel.kind" = "internal",
        "http.request.method" = "POST",
        "url.path" = path,
        "http.request.resend_count" = (resends > 0).then_some(resends),
        "http.response.status_code" = Empty,
        "request_id" = Empty,
        "error.type" = Empty,
    )
}

/// A request or an attempt that failed.
pub(crate) fn failed(span: &Span, error: &Error) {
    span.record("error.type", error.api_type().unwrap_or_else(|| error.kind().as_str()));
    span.record("request_id", error.request_id());
}

/// A call of a tool.
pub(crate) fn tool(call: &PendingCall) -> Span {
    info_span!(
        "execute_tool",
        "otel.name" = format!("execute_tool {}", call.name()),
        "otel.kind" = "internal",
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = call.name(),
        "gen_ai.tool.call.id" = call.id(),
        "gen_ai.tool.type" = "function",
        "error.type" = Empty,
    )
}

/// A call that ended in an error result.
pub(crate) fn tool_failed(span: &Span, error_type: &str) {
    span.record("error.type", error_type);
}

fn record_usage(span: &Span, usage: &Usage) {
    span.record("gen_ai.usage.input_tokens", usage.total_input_tokens());
    span.record("gen_ai.usage.output_tokens", usage.output_tokens);
    span.record("gen_ai.usage.cache_read.input_tokens", usage.cache_read_input_tokens);
    span.record("gen_ai.usage.cache_creation.input_tokens", usage.cache_creation_input_tokens);
}

const PROVIDER: &str = "anthropic";
