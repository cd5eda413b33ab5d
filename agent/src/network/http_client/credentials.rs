//! Values of headers that contain secrets.

use athanor_chassis::config::SecretString;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;

use super::HttpClientError;

/// Authorization type if the settings contain none.
const DEFAULT_AUTHORIZATION_TYPE: &str = "Bearer";

/// Returns a header value that is never printed.
pub(super) fn secret_header(secret: &SecretString) -> Result<HeaderValue, HttpClientError> {
    let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| HttpClientError::InvalidRequest {
        reason: "a secret contains characters that no header may contain".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the value of `Authorization` with a type and credentials.
pub(super) fn authorization_header(
    authorization_type: &str,
    credentials: &SecretString,
) -> Result<HeaderValue, HttpClientError> {
    let name = if authorization_type.is_empty() { DEFAULT_AUTHORIZATION_TYPE } else { authorization_type };
    secret_header(&SecretString::new(format!("{name} {}", credentials.expose())))
}

/// Returns the value of `Authorization` with a user name and a password.
pub(super) fn basic_header(username: &str, password: &SecretString) -> Result<HeaderValue, HttpClientError> {
    let pair = BASE64_STANDARD.encode(format!("{username}:{}", password.expose()));
    secret_header(&SecretString::new(format!("Basic {pair}")))
}

/// Returns the value of `Authorization` for the part of a URL before `@`.
pub(super) fn url_header(user_info: &str) -> Result<HeaderValue, HttpClientError> {
    let (username, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let mut pair = percent_decode(username);
    pair.push(b':');
    pair.extend(percent_decode(password));
    secret_header(&SecretString::new(format!("Basic {}", BASE64_STANDARD.encode(pair))))
}

/// Decodes `%xx`. Other text stays unchanged.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| first == b'%').and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                rest = &tail[2..];
            }
            None => {
                decoded.push(first);
                rest = tail;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_url_is_decoded() {
        let value = url_header("us%65r:p%40ss%").unwrap();
        let expected = format!("Basic {}", BASE64_STANDARD.encode("user:p@ss%"));
        assert_eq!(value.to_str().unwrap(), expected);
        assert!(value.is_sensitive());
    }

    #[test]
    fn secret_with_line_break_is_rejected_without_printing_it() {
        let error = authorization_header("", &SecretString::new("hush\nhush")).unwrap_err();
        assert!(!error.to_string().contains("hush"), "{error}");
        let value = authorization_header("", &SecretString::new("x")).unwrap();
        assert_eq!(value.to_str().unwrap(), "Bearer x");
    }
}
