//! Secret shared by all nodes of a cluster, and the token that proves its possession.
//!
//! The file has one line, or two while the secret is rotated. This node sends the first secret and accepts
//! both. So rotation rejects no request while nodes change one by one: first old and new, then new and old,
//! then new alone.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};
use athanor_profile::encoding::hex::{decode_hex, encode_hex};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;
use ring::digest::SHA256_OUTPUT_LEN;
use ring::hmac;

/// Content of a token, which is signed with the secret.
const TOKEN_CLAIM: &[u8] = b"athanor internal 1";
const BEARER_PREFIX: &str = "Bearer ";
/// Allowed length of a secret in bytes.
const SECRET_LENGTH_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;
/// Upper bound of secrets in force: one, or the old and the new.
const MAX_SECRETS: usize = 2;

/// Secrets in force. Cheap to clone: clones change together.
#[derive(Clone)]
pub struct ClusterSecrets {
    held: Arc<RwLock<ActiveSecrets>>,
}

struct ActiveSecrets {
    /// Accepted secrets. The first one signs the token that this node sends.
    keys: Vec<hmac::Key>,
    shown: HeaderValue,
}

/// Rejection of a secret file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The file has no line, or too many.
    #[error("the secret file has {0} lines; must be one, or two during rotation")]
    Lines(usize),
    /// A secret is empty or too short, so easily guessed, or too long.
    #[error("a secret must have {} to {} bytes, line {line} has {length}; `openssl rand -hex 32` generates one", SECRET_LENGTH_BYTES.start(), SECRET_LENGTH_BYTES.end())]
    Length {
        /// Line number, from 1.
        line: usize,
        /// Length of the secret in bytes.
        length: usize,
    },
}

impl ErrorCodeExt for SecretError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

impl ClusterSecrets {
    /// Parses the text of a secret file.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        Ok(Self { held: Arc::new(RwLock::new(ActiveSecrets::parse(text)?)) })
    }

    /// Replaces the secrets by those of the text. If the text is invalid, the previous secrets stay in force.
    pub fn replace(&self, text: &str) -> Result<(), SecretError> {
        let held = ActiveSecrets::parse(text)?;
        *self.held.write() = held;
        Ok(())
    }

    /// Value of the `authorization` header that this node sends.
    pub fn authorization_header(&self) -> HeaderValue {
        self.held.read().shown.clone()
    }

    /// Checks that the headers carry a token of this cluster. The comparison takes constant time.
    pub fn check_headers(&self, headers: &HeaderMap) -> Result<(), Status> {
        let refused = |message: &str| Err(Status::new(ErrorCode::Unauthenticated, message));
        let Some(value) = headers.get(AUTHORIZATION) else {
            return refused(
                "missing token: this port serves cluster nodes only; clients must use the public port",
            );
        };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix(BEARER_PREFIX));
        let token = token.filter(|digits| digits.len() == 2 * SHA256_OUTPUT_LEN).and_then(decode_hex);
        let held = self.held.read();
        let fits = |tag: &[u8]| held.keys.iter().any(|key| hmac::verify(key, TOKEN_CLAIM, tag).is_ok());
        match token {
            Some(tag) if fits(&tag) => Ok(()),
            _ => refused(
                "the token does not match the cluster secret; compare cluster.secret_file on both nodes",
            ),
        }
    }
}

impl ActiveSecrets {
    fn parse(text: &str) -> Result<Self, SecretError> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() || lines.len() > MAX_SECRETS {
            return Err(SecretError::Lines(lines.len()));
        }
        for (number, line) in lines.iter().enumerate() {
            if !SECRET_LENGTH_BYTES.contains(&line.len()) {
                return Err(SecretError::Length { line: number + 1, length: line.len() });
            }
        }
        let keys: Vec<_> =
            lines.iter().map(|line| hmac::Key::new(hmac::HMAC_SHA256, line.as_bytes())).collect();
        let token = format!("{BEARER_PREFIX}{}", encode_hex(hmac::sign(&keys[0], TOKEN_CLAIM).as_ref()));
        let mut shown = HeaderValue::try_from(token).expect("hexadecimal digits may be in a header");
        shown.set_sensitive(true);
        Ok(Self { keys, shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "an old secret of some length";
    const NEW: &str = "a new secret of some length";

    fn headers(secrets: &ClusterSecrets) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, secrets.authorization_header())])
    }

    fn taken(by: &ClusterSecrets, from: &ClusterSecrets) -> bool {
        by.check_headers(&headers(from)).is_ok()
    }

    #[test]
    fn nothing_is_refused_while_the_secret_is_changed() {
        let both = format!("{OLD}\n{NEW}\n");
        let turned = format!("{NEW}\n{OLD}");
        let steps = [OLD, &both, &turned, NEW].map(|text| ClusterSecrets::parse(text).unwrap());
        for pair in steps.windows(2) {
            assert!(taken(&pair[0], &pair[1]) && taken(&pair[1], &pair[0]));
        }
        assert!(!taken(&steps[0], &steps[3]) && !taken(&steps[3], &steps[0]));
        steps[0].replace(NEW).unwrap();
        assert!(taken(&steps[0].clone(), &steps[3]), "clones change together");
    }

    #[test]
    fn what_is_no_token_is_refused_in_words() {
        let secrets = ClusterSecrets::parse(OLD).unwrap();
        let refused = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(value).unwrap())]);
            secrets.check_headers(&headers).unwrap_err()
        };
        for value in
            ["", "Bearer", "Bearer ", "Bearer 12", "Basic YTpi", &format!("Bearer {}", "0".repeat(64))]
        {
            let status = refused(value);
            assert_eq!(status.code, ErrorCode::Unauthenticated);
            assert!(status.message.contains("cluster.secret_file"), "{status}");
        }
        let without = secrets.check_headers(&HeaderMap::new()).unwrap_err();
        assert!(without.message.contains("public port"), "{without}");
        assert!(!format!("{:?}", secrets.authorization_header()).contains("Bearer"), "it is not logged");
    }

    #[test]
    fn what_is_no_secret_is_refused_and_changes_nothing() {
        let secrets = ClusterSecrets::parse(OLD).unwrap();
        let before = secrets.authorization_header();
        assert_eq!(secrets.replace("\n \n"), Err(SecretError::Lines(0)));
        assert_eq!(secrets.replace(&format!("{OLD}\n{NEW}\n{OLD}")), Err(SecretError::Lines(3)));
        let short = secrets.replace(&format!("{OLD}\nshort")).unwrap_err();
        assert_eq!(short, SecretError::Length { line: 2, length: 5 });
        assert!(short.to_string().contains("16 to 1024 bytes, line 2 has 5"));
        assert_eq!(secrets.authorization_header(), before);
    }
}
