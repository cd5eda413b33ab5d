//! Texts of errors: of the transport, and of responses that are errors.

use std::error::Error;
use std::io::ErrorKind;

use athanor_profile::render::printable::escape_control;
use reqwest::header::HeaderName;
use reqwest::{Response, StatusCode};

/// Maximum characters of an error message that are shown.
const MAX_ERROR_TEXT_CHARS: usize = 2000;

/// Returns a header of a response, empty if it is missing or not text.
pub(crate) fn header<'r>(response: &'r Response, name: &HeaderName) -> &'r str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the message of an error response: Connect's code and message, else the body, else the meaning of
/// the status.
pub(crate) fn error_text(status: StatusCode, body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ConnectErrorBody {
        code: String,
        #[serde(default)]
        message: String,
    }
    let text = match serde_json::from_slice::<ConnectErrorBody>(body) {
        Ok(ConnectErrorBody { code, message }) => format!("{code}: {message}"),
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            let reason = status.canonical_reason().unwrap_or("no reason given");
            let text = if text.trim_start().starts_with('<') { "" } else { text.trim() };
            format!("{} {reason}{}{text}", status.as_u16(), if text.is_empty() { "" } else { ": " })
        }
    };
    escape_control(&text).chars().take(MAX_ERROR_TEXT_CHARS).collect()
}

/// Returns the innermost cause of an error.
pub(crate) fn last_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    escape_control(&last.to_string())
}

/// Returns whether nothing listens at the address.
pub(crate) fn is_connection_refused(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_of_any_server_is_readable() {
        let connect =
            error_text(StatusCode::BAD_REQUEST, br#"{"code":"invalid_argument","message":"bad \u001b"}"#);
        assert_eq!(connect, "invalid_argument: bad \\u{1b}");
        assert_eq!(error_text(StatusCode::BAD_GATEWAY, b"<html>"), "502 Bad Gateway");
        let page = error_text(StatusCode::NOT_FOUND, b"404 page not found\n");
        assert_eq!(page, "404 Not Found: 404 page not found");
    }
}
