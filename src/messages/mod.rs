//! The wire vocabulary.

mod api_error;
pub(crate) mod json;
mod open;

pub use api_error::{ApiError, ApiErrorType};
