//! The error object of the API, the same in a response body and in a stream.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use super::json::{self, Fields};
use super::open::open_enum;

open_enum! {
    /// What the API calls an error: the `type` inside its error object.
    ApiErrorType {
        /// The server failed (500).
        Api = "api_error",
        /// The key or token is missing, wrong, expired or revoked (401).
        Authentication = "authentication_error",
        /// Payment is needed (402).
        Billing = "billing_error",
        /// Another request is in the way (409).
        Conflict = "conflict_error",
        /// The request breaks a rule of the API (400).
        InvalidRequest = "invalid_request_error",
        /// A model, file or thread does not exist (404).
        NotFound = "not_found_error",
        /// The API has no capacity at the moment (529).
        Overloaded = "overloaded_error",
        /// The credential may not do this (403).
        Permission = "permission_error",
        /// A rate or spend limit was reached (429).
        RateLimit = "rate_limit_error",
        /// The body is larger than the API takes (413).
        RequestTooLarge = "request_too_large",
        /// The API did not finish in time (504).
        Timeout = "timeout_error",
    }
}

/// An error as the API tells it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ApiError {
    /// The type, kept as text where it is not known.
    pub error_type: ApiErrorType,
    /// The API's own words.
    pub message: String,
    /// Details as JSON, where the API gave some.
    pub details: Option<Box<RawValue>>,
    /// The request id of the body; the header's is on the [`Error`](crate::Error).
    pub request_id: Option<String>,
    error_code: Option<String>,
}

impl ApiError {
    /// Reads an error body, `{"type":"error","error":{…}}`, or one without the outer `type` or
    /// the `error` around it, as gateways send them. `None` if the text holds no error object.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let outer = Fields::parse(text)?;
        let inner = match outer.get("error") {
            Some(error) => Fields::parse(error.get())?,
            None => outer.clone(),
        };
        let error_type = inner.str("type")?;
        let message = inner.str("message")?;
        let details = inner.get("details").filter(|details| !json::is_null(details));
        let code = |details: &RawValue| Fields::parse(details.get())?.str("error_code").map(Cow::into_owned);
        Some(Self {
            error_type: ApiErrorType::from(&*error_type),
            message: message.into_owned(),
            error_code: details.and_then(code),
            details: details.map(ToOwned::to_owned),
            request_id: outer.str("request_id").map(Into::into),
        })
    }

    /// Changes each text that is shown.
    pub(crate) fn map_texts(self, change: impl Fn(String) -> String) -> Self {
        Self {
            error_type: ApiErrorType::from(&*change(self.error_type.as_str().to_owned())),
            message: change(self.message),
            details: self.details,
            request_id: self.request_id.map(&change),
            error_code: self.error_code.map(&change),
        }
    }

    /// `details.error_code`, the finest name that the API has for an error.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.error_code.as_deref()
    }
}

/// Without the details: they may quote the request.
impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiError")
            .field("error_type", &self.error_type)
            .field("message", &self.message)
            .field("error_code", &self.error_code())
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_envelope_and_its_shorter_forms() {
        let full = ApiError::from_json(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy","details":{"error_code":"x"}},"request_id":"req_1"}"#,
        )
        .unwrap();
        assert_eq!(full.error_type, ApiErrorType::Overloaded);
        assert_eq!(full.message, "busy");
        assert_eq!(full.error_code(), Some("x"));
        assert_eq!(full.request_id.as_deref(), Some("req_1"));

        let bare = ApiError::from_json(r#"{"type":"brand_new","message":"m"}"#).unwrap();
        assert_eq!(bare.error_type.as_str(), "brand_new");
        assert!(ApiError::from_json("<html>").is_none());
        assert!(ApiError::from_json(r#"{"type":"message"}"#).is_none());
    }
}
