//! Idle connections of one client.

use std::collections::HashMap;
use std::time::Duration;

use http::Uri;

use super::connection::Connection;
use super::{Destination, HttpClientError};

/// Maximum idle connections of one client.
const MAX_IDLE_CONNECTIONS: usize = 4096;
/// Maximum idle connections to one host and port.
const MAX_IDLE_PER_HOST: usize = 4;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// Host and port of connections, with their protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    is_tls: bool,
    host: String,
    authority: String,
}

/// Idle connections by host.
#[derive(Default)]
pub(super) struct ConnectionPool {
    idle: HashMap<PoolKey, Vec<IdleConnection>>,
    count: usize,
    next_sweep: Duration,
}

struct IdleConnection {
    connection: Connection,
    since: Duration,
}

impl PoolKey {
    /// Reads scheme and authority of a URI.
    pub(super) fn new(uri: &Uri) -> Result<Self, HttpClientError> {
        let invalid = |reason: &str| HttpClientError::InvalidRequest { reason: reason.to_owned() };
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid("the scheme of the URL must be http or https")),
        };
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
            return Err(invalid("the URL has no host"));
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        Ok(Self { is_tls, host: bare.to_owned(), authority })
    }

    /// Returns whether connections use TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Host without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Host and port.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

impl ConnectionPool {
    /// Removes an idle connection to one of the addresses of the destination.
    pub(super) fn take(
        &mut self,
        key: &PoolKey,
        destination: &Destination,
        now: Duration,
    ) -> Option<Connection> {
        let connections = self.idle.get_mut(key)?;
        let is_usable = |idle: &IdleConnection| {
            now.saturating_sub(idle.since) < IDLE_TIMEOUT && idle.connection.remote().is_in(destination)
        };
        let at = connections.iter().rposition(is_usable)?;
        self.count -= 1;
        Some(connections.remove(at).connection)
    }

    /// Keeps a connection, unless there are too many.
    pub(super) fn put(&mut self, key: PoolKey, connection: Connection, now: Duration) {
        self.sweep(now);
        if self.count >= MAX_IDLE_CONNECTIONS {
            return;
        }
        let connections = self.idle.entry(key).or_default();
        if connections.len() >= MAX_IDLE_PER_HOST {
            connections.remove(0);
            self.count -= 1;
        }
        connections.push(IdleConnection { connection, since: now });
        self.count += 1;
    }

    /// Closes all idle connections.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
        self.count = 0;
    }

    /// Closes the connections that are idle for too long, at most twice per timeout.
    fn sweep(&mut self, now: Duration) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + IDLE_TIMEOUT / 2;
        self.idle.retain(|_, connections| {
            connections.retain(|idle| now.saturating_sub(idle.since) < IDLE_TIMEOUT);
            !connections.is_empty()
        });
        self.count = self.idle.values().map(Vec::len).sum();
    }
}
