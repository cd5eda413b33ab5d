//! Access control of administration pages about the cluster, the settings and the process.
//!
//! A server that listens only on loopback allows everyone, unless a token file is configured. Other servers
//! require the token, and deny access if none is configured.
//! The token file is read for each request, so changes apply at once.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, ErrorCode, Status};
use athanor_http_server::PeerAddress;
use athanor_http_server::encoding::json_error;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use crate::http::admin::token_throttle::TokenThrottle;

/// Minimum and maximum length of a token in bytes.
const TOKEN_LENGTH_RANGE: std::ops::RangeInclusive<usize> = 16..=1024;
/// Challenge of a rejection, on which browsers prompt for a password.
const CHALLENGE_HEADER: HeaderValue =
    HeaderValue::from_static("Basic realm=\"athanor administration\", charset=\"UTF-8\"");

/// Authorization of administrators.
#[derive(Clone, Debug)]
pub struct AdminAuth {
    token: Option<Arc<PathBuf>>,
    is_local: bool,
    throttle: Arc<TokenThrottle>,
}

impl AdminAuth {
    /// Creates the access control of a server that listens on an address, with an optional token file.
    pub fn new(listens: SocketAddr, token: Option<PathBuf>, clock: Clock) -> Self {
        let throttle = Arc::new(TokenThrottle::new(clock));
        Self { token: token.map(Arc::new), is_local: listens.ip().to_canonical().is_loopback(), throttle }
    }

    /// Returns the number of wrong tokens so far.
    pub fn failed_tokens(&self) -> u64 {
        self.throttle.failed()
    }

    /// Returns whether the client may read tenant names. Returns a response instead if the client sent a
    /// wrong token.
    pub async fn check_tenant_access(
        &self,
        headers: &HeaderMap,
        peer: Option<PeerAddress>,
        compute: &ComputePool,
    ) -> Result<bool, Response<Body>> {
        if self.is_local {
            return Ok(true);
        }
        self.check_optional_token(headers, peer, compute).await
    }

    /// Returns whether the client may list all tenants, like [`check_tenant_access`](Self::check_tenant_access). If a
    /// token file is configured, clients on this machine need the token, too. So do requests of other machines that a
    /// proxy on this one forwards.
    pub async fn check_tenant_list_access(
        &self,
        headers: &HeaderMap,
        peer: Option<PeerAddress>,
        is_forwarded: bool,
        compute: &ComputePool,
    ) -> Result<bool, Response<Body>> {
        if self.is_local && self.token.is_none() && !is_forwarded {
            return Ok(true);
        }
        self.check_optional_token(headers, peer, compute).await
    }

    /// Returns whether the client sent the token. Returns a response instead if it sent a wrong one.
    async fn check_optional_token(
        &self,
        headers: &HeaderMap,
        peer: Option<PeerAddress>,
        compute: &ComputePool,
    ) -> Result<bool, Response<Body>> {
        if self.token.is_none() || presented_token(headers).is_none() {
            return Ok(false);
        }
        self.admit(headers, peer, compute).await.map(|()| true)
    }

    /// Admits the client of a request or returns the rejection.
    pub async fn admit(
        &self,
        headers: &HeaderMap,
        peer: Option<PeerAddress>,
        compute: &ComputePool,
    ) -> Result<(), Response<Body>> {
        let Some(path) = &self.token else {
            let message = "administration pages are disabled on this address because admin_token_file is not set: set it and send \
                           the token, or run athanor shard list, athanor metastore voters list or athanor config on the \
                           machine of the server";
            let refused = || json_error(&Status::new(ErrorCode::PermissionDenied, message));
            return if self.is_local { Ok(()) } else { Err(refused()) };
        };
        let file = Arc::clone(path);
        let read = match compute.run(move || read_token(&file)).await {
            Ok(read) => read,
            Err(error) => Err(Status::from_error(&error)),
        };
        let token = read.map_err(|status| {
            tracing::warn!(error = %status, "failed to read the administration token, rejecting all requests");
            let message = "admin_token_file is unusable; the log of the server contains the cause";
            json_error(&Status::new(status.code, message))
        })?;
        let Some(presented) = presented_token(headers) else {
            return Err(challenge("the request has no token"));
        };
        // The right token never waits for wrong ones. Otherwise any client could block administrators.
        if constant_time_eq(&presented, token.as_bytes()) {
            return Ok(());
        }
        let attempt = self.throttle.begin().await.map_err(|status| json_error(&status))?;
        attempt.fail(peer.map(|peer| peer.0));
        Err(challenge("the token is wrong"))
    }
}

/// Returns a response that requests the token.
fn challenge(cause: &str) -> Response<Body> {
    let message = format!(
        "administration page: {cause}; send the token of admin_token_file as Authorization: Bearer TOKEN, or as the password of \
         any user"
    );
    let mut refused = json_error(&Status::new(ErrorCode::Unauthenticated, message));
    refused.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE_HEADER);
    refused
}

/// Reads the token from a file.
pub fn read_token(path: &Path) -> Result<String, Status> {
    let failed =
        |code, why: String| Status::new(code, format!("admin_token_file: {}: {why}", path.display()));
    let mut text = String::new();
    // The limit includes some whitespace around the token.
    let read = File::open(path)
        .and_then(|file| file.take(2 * *TOKEN_LENGTH_RANGE.end() as u64).read_to_string(&mut text));
    read.map_err(|error| failed(ErrorCode::Unavailable, error.to_string()))?;
    let token = text.trim();
    if !TOKEN_LENGTH_RANGE.contains(&token.len()) || token.contains(char::is_whitespace) {
        let why = format!(
            "a token is one word of {} to {} bytes, this one has {}; generate one with openssl rand -hex 32",
            TOKEN_LENGTH_RANGE.start(),
            TOKEN_LENGTH_RANGE.end(),
            token.len()
        );
        return Err(failed(ErrorCode::Invalid, why));
    }
    Ok(token.to_owned())
}

/// Returns the token of a request, sent as a bearer token or as a password.
fn presented_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, rest) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(rest).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Compares tokens in constant time: the comparison uses hashes of all bytes.
fn constant_time_eq(presented: &[u8], token: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"athanor administration");
    hmac::verify(&key, presented, hmac::sign(&key, token).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    const TOKEN: &str = "a-token-of-some-length";

    fn guard_on(listens: &str, token: Option<PathBuf>) -> AdminAuth {
        AdminAuth::new(listens.parse().unwrap(), token, Clock::system())
    }

    async fn admit(guard: &AdminAuth, authorization: Option<&str>) -> Result<(), (StatusCode, bool)> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        let admitted = guard.admit(&headers, None, &ComputePool::inline()).await;
        admitted.map_err(|response| (response.status(), response.headers().contains_key(WWW_AUTHENTICATE)))
    }

    #[tokio::test]
    async fn request_with_token_is_admitted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for listens in ["0.0.0.0:4040", "127.0.0.1:4040"] {
            let guard = guard_on(listens, Some(file.path().to_owned()));
            for good in [format!("Bearer {TOKEN}"), format!("bearer  {TOKEN}"), basic(&format!("me:{TOKEN}"))]
            {
                assert_eq!(admit(&guard, Some(&good)).await, Ok(()), "{good}");
            }
            let bad =
                [format!("Bearer {TOKEN}x"), basic(TOKEN), basic(&format!("{TOKEN}:")), TOKEN.to_owned()];
            for bad in
                bad.iter().map(|bad| Some(bad.as_str())).chain([None, Some("Bearer "), Some("Basic ?")])
            {
                assert_eq!(admit(&guard, bad).await, Err((StatusCode::UNAUTHORIZED, true)), "{bad:?}");
            }
        }
        // A changed token takes effect at once; an invalid token file admits no request.
        let guard = guard_on("0.0.0.0:1", Some(file.path().to_owned()));
        std::fs::write(file.path(), "another-token-of-that-kind").unwrap();
        assert!(admit(&guard, Some(&format!("Bearer {TOKEN}"))).await.is_err());
        for odd in ["", "short", "two words of some length"] {
            std::fs::write(file.path(), odd).unwrap();
            let bearer = format!("Bearer {odd}");
            assert_eq!(admit(&guard, Some(&bearer)).await, Err((StatusCode::BAD_REQUEST, false)), "{odd}");
        }
    }

    #[tokio::test]
    async fn without_token_file_only_loopback_is_admitted() {
        for (listens, expected) in [
            ("127.0.0.1:1", Ok(())),
            ("[::1]:1", Ok(())),
            ("0.0.0.0:1", Err((StatusCode::FORBIDDEN, false))),
            ("[::]:1", Err((StatusCode::FORBIDDEN, false))),
            ("10.0.0.5:1", Err((StatusCode::FORBIDDEN, false))),
        ] {
            let guard = guard_on(listens, None);
            assert_eq!(admit(&guard, None).await, expected, "{listens}");
        }
    }
}
