//! The secret that nodes of a cluster share, and the token by which one shows another that it has it.
//!
//! The file has one line, or two while the secret is changed: the first is what this node shows, both are taken. So
//! nothing is refused while nodes are told one after the other: first old and new, then new and old, then new alone.

use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};

use athanor_chassis::{Code, Coded, Status};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use ring::hmac;

/// What a token says, keyed with the secret.
const CLAIM: &[u8] = b"athanor internal 1";
const SCHEME: &str = "Bearer ";
/// Bytes of a secret, at least and at most.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=1024;
/// Secrets at once: one, or the old and the new.
const MOST: usize = 2;

/// The secrets in force. Cheap to clone; clones change together.
#[derive(Clone)]
pub struct Secrets {
    held: Arc<RwLock<Held>>,
}

struct Held {
    /// The first is shown to others.
    keys: Vec<hmac::Key>,
    shown: HeaderValue,
}

/// A text that holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No line, or too many.
    #[error("a secret file has one line, or two while the secret is changed; this one has {0}")]
    Lines(usize),
    /// A secret that is easily guessed, or none at all.
    #[error("a secret has {} to {} bytes, line {line} has {length}; `openssl rand -hex 32` writes a good one", LENGTH.start(), LENGTH.end())]
    Length {
        /// Which, from 1.
        line: usize,
        /// Its bytes.
        length: usize,
    },
}

impl Coded for SecretError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}

impl Secrets {
    /// Reads the text of a secret file.
    pub fn read(text: &str) -> Result<Self, SecretError> {
        Ok(Self { held: Arc::new(RwLock::new(Held::read(text)?)) })
    }

    /// Takes what the file says now. Where that is no secret, those before stay in force.
    pub fn replace(&self, text: &str) -> Result<(), SecretError> {
        let held = Held::read(text)?;
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(())
    }

    /// What this node shows others, as the value of `authorization`.
    pub fn shown(&self) -> HeaderValue {
        self.held.read().unwrap_or_else(PoisonError::into_inner).shown.clone()
    }

    /// Whether whoever sent these headers has a secret of this cluster. The time it takes tells nothing of the secret.
    pub fn admits(&self, headers: &HeaderMap) -> Result<(), Status> {
        let refused = |message: &str| Err(Status::new(Code::Unauthenticated, message));
        let Some(value) = headers.get(AUTHORIZATION) else {
            return refused(
                "this port is for nodes of the cluster, and no token came; clients ask the public port",
            );
        };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix(SCHEME)).and_then(unhex);
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let fits = |tag: &[u8]| held.keys.iter().any(|key| hmac::verify(key, CLAIM, tag).is_ok());
        match token {
            Some(tag) if fits(&tag) => Ok(()),
            _ => refused(
                "the token is of another secret; compare the files that cluster.secret_file names on both nodes",
            ),
        }
    }
}

impl Held {
    fn read(text: &str) -> Result<Self, SecretError> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() || lines.len() > MOST {
            return Err(SecretError::Lines(lines.len()));
        }
        for (number, line) in lines.iter().enumerate() {
            if !LENGTH.contains(&line.len()) {
                return Err(SecretError::Length { line: number + 1, length: line.len() });
            }
        }
        let keys: Vec<_> =
            lines.iter().map(|line| hmac::Key::new(hmac::HMAC_SHA256, line.as_bytes())).collect();
        let mut token = SCHEME.to_owned();
        for byte in hmac::sign(&keys[0], CLAIM).as_ref() {
            // Writing to a string does not fail.
            let _ = write!(token, "{byte:02x}");
        }
        let mut shown = HeaderValue::try_from(token).expect("hexadecimal digits may be in a header");
        shown.set_sensitive(true);
        Ok(Self { keys, shown })
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    digits.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "an old secret of some length";
    const NEW: &str = "a new secret of some length";

    fn headers(secrets: &Secrets) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, secrets.shown())])
    }

    fn taken(by: &Secrets, from: &Secrets) -> bool {
        by.admits(&headers(from)).is_ok()
    }

    #[test]
    fn nothing_is_refused_while_the_secret_is_changed() {
        let both = format!("{OLD}\n{NEW}\n");
        let turned = format!("{NEW}\n{OLD}");
        let steps = [OLD, &both, &turned, NEW].map(|text| Secrets::read(text).unwrap());
        for pair in steps.windows(2) {
            assert!(taken(&pair[0], &pair[1]) && taken(&pair[1], &pair[0]));
        }
        assert!(!taken(&steps[0], &steps[3]) && !taken(&steps[3], &steps[0]));
        steps[0].replace(NEW).unwrap();
        assert!(taken(&steps[0].clone(), &steps[3]), "clones change together");
    }

    #[test]
    fn what_is_no_token_is_refused_in_words() {
        let secrets = Secrets::read(OLD).unwrap();
        let refused = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(value).unwrap())]);
            secrets.admits(&headers).unwrap_err()
        };
        for value in
            ["", "Bearer", "Bearer ", "Bearer 12", "Basic YTpi", &format!("Bearer {}", "0".repeat(64))]
        {
            let status = refused(value);
            assert_eq!(status.code, Code::Unauthenticated);
            assert!(status.message.contains("cluster.secret_file"), "{status}");
        }
        let without = secrets.admits(&HeaderMap::new()).unwrap_err();
        assert!(without.message.contains("public port"), "{without}");
        assert!(!format!("{:?}", secrets.shown()).contains("Bearer"), "it is not logged");
    }

    #[test]
    fn what_is_no_secret_is_refused_and_changes_nothing() {
        let secrets = Secrets::read(OLD).unwrap();
        let before = secrets.shown();
        assert_eq!(secrets.replace("\n \n"), Err(SecretError::Lines(0)));
        assert_eq!(secrets.replace(&format!("{OLD}\n{NEW}\n{OLD}")), Err(SecretError::Lines(3)));
        let short = secrets.replace(&format!("{OLD}\nshort")).unwrap_err();
        assert_eq!(short, SecretError::Length { line: 2, length: 5 });
        assert!(short.to_string().contains("16 to 1024 bytes, line 2 has 5"));
        assert_eq!(secrets.shown(), before);
    }
}
