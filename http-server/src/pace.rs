//! Minimum pace of request bodies.

use std::io;
use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{ByteSize, Clock, ErrorCode, Status};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;

/// Minimum bytes per second of a body, after [`PACE_GRACE`].
const MIN_BYTES_PER_SECOND: u64 = 1024;
/// Time that a client may lag behind that pace.
const PACE_GRACE: Duration = Duration::from_secs(5);

/// Request body that fails if it arrives too slowly. Only time in which the server waits for bytes counts.
pub struct PacedBody {
    body: Body,
    clock: Clock,
    length: u64,
    waited: Duration,
}

impl PacedBody {
    /// Wraps a body that is still unread.
    pub fn new(body: Body, clock: Clock) -> Self {
        Self { body, clock, length: 0, waited: Duration::ZERO }
    }

    /// Returns the number of bytes received so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Reads the next bytes. Returns None at the end of the body. No read is possible after an error.
    pub async fn next_piece(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            let due = PACE_GRACE + Duration::from_millis(self.length * 1000 / MIN_BYTES_PER_SECOND);
            let begun = self.clock.monotonic();
            let left = due.saturating_sub(self.waited);
            let Ok(frame) = self.clock.timeout(left, self.body.frame()).await else {
                return Some(Err(self.too_slow(due)));
            };
            self.waited += self.clock.monotonic().saturating_sub(begun);
            match frame? {
                Ok(frame) => {
                    let Ok(piece) = frame.into_data() else { continue };
                    self.length += piece.len() as u64;
                    return Some(Ok(piece));
                }
                Err(error) => return Some(Err(body_read_error(&error, self.length))),
            }
        }
    }

    fn too_slow(&self, waited: Duration) -> Status {
        let message = format!(
            "the body arrives too slowly: {} in {}, the minimum after {} is {} per second; send smaller batches or use a \
             faster connection",
            ByteSize::bytes(self.length),
            format_duration(waited),
            format_duration(PACE_GRACE),
            ByteSize::bytes(MIN_BYTES_PER_SECOND)
        );
        Status::new(ErrorCode::Deadline, message).with_reason("body_too_slow")
    }
}

/// Returns the error of a body that cannot be read further: the client disconnected, or the chunks are
/// malformed.
fn body_read_error(error: &(dyn std::error::Error + 'static), length: u64) -> Status {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let malformed = causes.find_map(|cause| {
        let cause = cause.downcast_ref::<io::Error>()?;
        matches!(cause.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData).then_some(cause)
    });
    match malformed {
        Some(cause) => {
            Status::new(ErrorCode::Invalid, format!("failed to read the body after {length} bytes: {cause}"))
        }
        None => Status::new(ErrorCode::Cancelled, format!("the body ended after {length} bytes: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use athanor_chassis::Timestamp;
    use futures::StreamExt;
    use futures::channel::mpsc::unbounded;
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn body_slower_than_the_pace_fails_after_the_grace() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let (sender, receiver) = unbounded::<Bytes>();
        let mut body = PacedBody::new(Body::from_stream(receiver.map(Ok::<_, Infallible>)), clock);
        // As fast as it has to be, for longer than the grace.
        for _ in 0..20 {
            let mut next = std::pin::pin!(body.next_piece());
            assert!(poll_immediate(&mut next).await.is_none());
            hand.advance(Duration::from_secs(1));
            sender.unbounded_send(Bytes::from(vec![7; 1024])).unwrap();
            assert_eq!(next.await.unwrap().unwrap().len(), 1024);
        }
        // Time in which nobody reads is the server's.
        hand.advance(Duration::from_secs(60));
        let mut next = std::pin::pin!(body.next_piece());
        assert!(poll_immediate(&mut next).await.is_none());
        hand.advance(PACE_GRACE - Duration::from_millis(1));
        assert!(poll_immediate(&mut next).await.is_none());
        hand.advance(PACE_GRACE);
        let refused = next.await.unwrap().unwrap_err();
        assert_eq!(refused.code, ErrorCode::Deadline);
        assert!(
            refused.message.starts_with("the body arrives too slowly: 20KiB in 25s, the minimum after 5s"),
            "{refused}"
        );
    }
}
