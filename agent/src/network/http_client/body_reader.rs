//! Reader of response bodies with limits of size, rate and time.

use std::time::Duration;

use athanor_chassis::Clock;
use athanor_profile::formats::pprof;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::HttpClientError;
use super::connection::Connection;

/// Maximum bytes that are allocated because of the announced length.
const MAX_PREALLOCATED_BYTES: u64 = 1 << 20;

/// Receiver of a response body.
pub trait BodySink: Send {
    /// Announces the length of the body, if the server sent it, before the first bytes.
    fn expect_length(&mut self, bytes: u64);

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// The reason why the sink takes no more. The request fails with it.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// Sink that collects the body.
impl BodySink for BytesMut {
    fn expect_length(&mut self, bytes: u64) {
        self.reserve(bytes.min(MAX_PREALLOCATED_BYTES) as usize);
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Limits of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Maximum bytes of the body as it is sent.
    pub max_body_bytes: u64,
    /// Time from the request to the end of the body, opening the connection included.
    pub total_timeout: Duration,
    /// Bytes of the body that must arrive in each window, from its first byte on. 0 for no minimum.
    pub min_bytes_per_window: u64,
    /// Length of a window.
    pub rate_window: Duration,
}

/// Reads a body to its end into a sink.
pub(super) async fn read_body(
    connection: &mut Connection,
    mut body: Incoming,
    sink: &mut dyn BodySink,
    limits: &ResponseLimits,
    clock: &Clock,
) -> Result<(), HttpClientError> {
    let too_large = || HttpClientError::BodyTooLarge { limit: limits.max_body_bytes };
    let announced = body.size_hint().lower();
    if announced > limits.max_body_bytes {
        return Err(too_large());
    }
    sink.expect_length(announced);
    let mut received: u64 = 0;
    let mut window: Option<RateWindow> = None;
    while !body.is_end_stream() {
        let frame = match &window {
            None => connection.drive(body.frame()).await,
            Some(current) => match current.wait_for(connection.drive(body.frame()), limits, clock).await {
                Ok(frame) => frame,
                Err(()) => {
                    let received_in_window = received - current.bytes_at_start;
                    if received_in_window < limits.min_bytes_per_window {
                        return Err(HttpClientError::SlowBody {
                            received: received_in_window,
                            minimum: limits.min_bytes_per_window,
                            window: limits.rate_window,
                        });
                    }
                    window = Some(RateWindow::start(received, clock));
                    continue;
                }
            },
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| HttpClientError::protocol(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len() as u64;
        if received > limits.max_body_bytes {
            return Err(too_large());
        }
        sink.receive(&data).map_err(|reason| HttpClientError::BodyRejected { reason })?;
        if window.is_none() && limits.min_bytes_per_window > 0 {
            window = Some(RateWindow::start(received, clock));
        }
    }
    Ok(())
}

/// Span of time in which a minimum of bytes must arrive.
struct RateWindow {
    started: Duration,
    bytes_at_start: u64,
}

impl RateWindow {
    fn start(received: u64, clock: &Clock) -> Self {
        Self { started: clock.monotonic(), bytes_at_start: received }
    }

    /// Waits for a future until the end of this window.
    async fn wait_for<F: Future>(
        &self,
        future: F,
        limits: &ResponseLimits,
        clock: &Clock,
    ) -> Result<F::Output, ()> {
        let elapsed = clock.monotonic().saturating_sub(self.started);
        let rest = limits.rate_window.saturating_sub(elapsed);
        if rest.is_zero() {
            return Err(());
        }
        clock.timeout(rest, future).await.map_err(|_| ())
    }
}

/// Removes the content encoding of a body.
pub(super) fn decode_body(
    headers: &HeaderMap,
    body: Bytes,
    max_plain_bytes: u64,
) -> Result<Bytes, HttpClientError> {
    let encoding = headers.get(CONTENT_ENCODING).map_or("", |value| value.to_str().unwrap_or("?")).trim();
    let limit = usize::try_from(max_plain_bytes).unwrap_or(usize::MAX);
    let failed = |reason: String| HttpClientError::Decompression { limit: max_plain_bytes, reason };
    match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" if body.len() > limit => {
            Err(HttpClientError::BodyTooLarge { limit: max_plain_bytes })
        }
        "" | "identity" => Ok(body),
        "gzip" | "x-gzip" if !body.starts_with(&[0x1f, 0x8b]) => Err(failed("body is not gzip".to_owned())),
        "zstd" if !body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => Err(failed("body is not zstd".to_owned())),
        "gzip" | "x-gzip" | "zstd" => {
            pprof::inflate(&body, limit).map(Bytes::from).map_err(|error| failed(error.to_string()))
        }
        _ => Err(HttpClientError::UnknownEncoding { encoding: encoding.chars().take(64).collect() }),
    }
}
