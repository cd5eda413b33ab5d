//! Limiter of open requests, with a share per connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};

/// Maximum number of concurrent HTTP/2 streams on a client connection.
const MAX_CLIENT_STREAMS: u32 = 128;
/// Retry delay that a rejected client receives.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Open requests of all connections. A request is open from its head to the last byte of its response.
#[derive(Debug)]
pub struct RequestLimiter {
    limit: usize,
    max_streams: u32,
    open: AtomicUsize,
}

/// Open requests of one connection.
#[derive(Debug)]
pub struct ConnectionRequests {
    all: Arc<RequestLimiter>,
    open: AtomicUsize,
}

/// Slot of one open request, freed on drop.
#[derive(Debug)]
pub struct RequestSlot {
    connection: Arc<ConnectionRequests>,
}

impl RequestLimiter {
    /// Creates the limits of all requests and of the streams on one connection.
    pub fn new(limit: usize, max_streams: u32) -> Self {
        Self { limit, max_streams, open: AtomicUsize::new(0) }
    }

    /// Creates the limiter for connections of clients, with `max_requests` open requests.
    pub fn for_clients(max_requests: u32) -> Arc<Self> {
        Arc::new(Self::new(max_requests as usize, MAX_CLIENT_STREAMS))
    }

    /// Returns the number of open requests.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of concurrent HTTP/2 streams on a connection.
    pub fn max_streams(&self) -> u32 {
        self.max_streams
    }
}

impl ConnectionRequests {
    /// Creates the state of a new connection.
    pub fn new(all: Arc<RequestLimiter>) -> Self {
        Self { all, open: AtomicUsize::new(0) }
    }

    /// Takes a slot. Rejects a request beyond the share of its connection: all its streams while half of the
    /// slots are free, fewer as more slots are taken. So a connection with few requests is admitted beside
    /// many greedy ones.
    pub fn admit(self: &Arc<Self>) -> Result<RequestSlot, Status> {
        let own = self.open.fetch_add(1, Ordering::Relaxed);
        let open = self.all.open.fetch_add(1, Ordering::Relaxed);
        let slot = RequestSlot { connection: Arc::clone(self) };
        let limit = self.all.limit;
        let free = limit.saturating_sub(open);
        let largest_share = 2 * self.all.max_streams as usize;
        if own.saturating_mul(limit) < free.saturating_mul(largest_share) {
            return Ok(slot);
        }
        let message = format!(
            "{open} requests are open, {own} of them on this connection, the limit is {limit} (max_requests); \
             connections with many open requests are rejected first; retry later"
        );
        Err(Status::new(ErrorCode::Exhausted, message)
            .with_reason("too_many_requests")
            .with_retry_after(RETRY_AFTER))
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.connection.open.fetch_sub(1, Ordering::Relaxed);
        self.connection.all.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(connection: &Arc<ConnectionRequests>, wanted: usize) -> Vec<RequestSlot> {
        (0..wanted).filter_map(|_| connection.admit().ok()).collect()
    }

    fn connection(all: &Arc<RequestLimiter>) -> Arc<ConnectionRequests> {
        Arc::new(ConnectionRequests::new(Arc::clone(all)))
    }

    #[test]
    fn greedy_connections_leave_slots_for_new_ones() {
        let all = RequestLimiter::for_clients(16_384);
        let greedy: Vec<_> = (0..300).map(|_| connection(&all)).collect();
        let mut held: Vec<_> = greedy.iter().map(|connection| admitted(connection, 128)).collect();
        assert_eq!(held[0].len(), 128, "a connection alone may hold all its streams");
        // They ask until nothing changes.
        for _ in 0..3 {
            for (connection, held) in greedy.iter().zip(&mut held) {
                held.extend(admitted(connection, 128 - held.len()));
            }
        }
        let open: usize = held.iter().map(Vec::len).sum();
        assert!(open < 16_384, "{open}");
        assert_eq!(admitted(&connection(&all), 1).len(), 1, "{open} are open");
        drop(held);
        assert_eq!(all.open(), 0);
    }

    #[test]
    fn request_over_the_limit_is_refused_with_cause_and_limit() {
        let all = RequestLimiter::for_clients(3);
        let connections: Vec<_> = (0..4).map(|_| connection(&all)).collect();
        let held: Vec<_> = connections[..3].iter().map(|connection| connection.admit().unwrap()).collect();
        let refused = connections[3].admit().unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (ErrorCode::Exhausted, Some(RETRY_AFTER)));
        assert!(
            refused.message.starts_with("3 requests are open, 0 of them on this connection, the limit is 3")
        );
        drop(held);
        assert!(connections[3].admit().is_ok());
    }
}
