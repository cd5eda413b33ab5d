//! Policy of the addresses that the agent connects to.
//!
//! Others than the operator write some targets: annotations, HTTP lists and DNS records. Such a target must not
//! reach services that trust local callers. The policy resolves the host once and returns the checked addresses.
//! The client connects to these, so a second lookup cannot replace them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::{Clock, Net};

mod ip_range;
mod restricted_address;

pub use ip_range::{IpRange, IpRangeError};
pub use restricted_address::{RestrictedKind, restricted_kind};

/// Maximum addresses of a host that are used.
const MAX_ADDRESSES_PER_HOST: usize = 16;
/// Maximum bytes of a host name, as in DNS.
const MAX_HOST_BYTES: usize = 253;

/// Settings of the address policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPolicySettings {
    /// Restricted addresses that untrusted targets may have nevertheless.
    pub allowed_ranges: Vec<IpRange>,
    /// Timeout of the lookup of a host.
    pub lookup_timeout: Duration,
}

/// Resolver of hosts that rejects restricted addresses of untrusted targets. Cheap to clone.
#[derive(Clone)]
pub struct AddressPolicy {
    net: Arc<dyn Net>,
    clock: Clock,
    settings: Arc<AddressPolicySettings>,
}

/// Host that the agent does not connect to.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The host is empty or too long.
    #[error("host {host:?} is not valid; a host has 1 to {MAX_HOST_BYTES} bytes and no control characters")]
    InvalidHost {
        /// Host, shortened.
        host: String,
    },
    /// The lookup failed.
    #[error("failed to resolve host {host}: {source}")]
    Lookup {
        /// Host that was looked up.
        host: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The lookup timed out.
    #[error("failed to resolve host {host}: {source}")]
    LookupTimeout {
        /// Host that was looked up.
        host: String,
        /// Limit that was exceeded.
        source: TimeoutElapsed,
    },
    /// All addresses of the host are restricted, and the source of the target is not trusted.
    #[error(
        "host {host} has the {kind} address {address}, which targets of annotations, HTTP lists and DNS must not \
         have; configure the target in a file, or add the address to allowed_target_ranges"
    )]
    Restricted {
        /// Host of the target.
        host: String,
        /// First restricted address.
        address: IpAddr,
        /// Kind of the address.
        kind: RestrictedKind,
    },
}

// === impl AddressPolicySettings ===

impl Default for AddressPolicySettings {
    fn default() -> Self {
        Self { allowed_ranges: Vec::new(), lookup_timeout: Duration::from_secs(5) }
    }
}

// === impl AddressPolicy ===

impl AddressPolicy {
    /// Creates a policy that resolves hosts with `net`. `clock` measures the timeout of lookups.
    pub fn new(net: Arc<dyn Net>, clock: Clock, settings: AddressPolicySettings) -> Self {
        Self { net, clock, settings: Arc::new(settings) }
    }

    /// Resolves a host once. An address in brackets is an IPv6 address.
    ///
    /// # Errors
    ///
    /// The lookup failed, or `is_untrusted` is set and all addresses are restricted. Of several addresses the
    /// restricted ones are left out.
    pub async fn resolve(
        &self,
        host: &str,
        port: u16,
        is_untrusted: bool,
    ) -> Result<Vec<SocketAddr>, AddressError> {
        let mut addresses = self.look_up(host, port).await?;
        addresses.truncate(MAX_ADDRESSES_PER_HOST);
        if !is_untrusted {
            return Ok(addresses);
        }
        let first_restricted = addresses.iter().find_map(|address| {
            let kind = self.check_address(address.ip()).err()?;
            Some(AddressError::Restricted { host: host.to_owned(), address: address.ip(), kind })
        });
        addresses.retain(|address| self.check_address(address.ip()).is_ok());
        match first_restricted {
            Some(error) if addresses.is_empty() => Err(error),
            _ => Ok(addresses),
        }
    }

    /// Returns the kind of a restricted address as an error, unless the settings allow the address.
    pub fn check_address(&self, address: IpAddr) -> Result<(), RestrictedKind> {
        let Some(kind) = restricted_kind(address) else { return Ok(()) };
        let is_allowed = self.settings.allowed_ranges.iter().any(|range| range.contains(address));
        if is_allowed { Ok(()) } else { Err(kind) }
    }

    async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let is_valid = !host.is_empty()
            && host.len() <= MAX_HOST_BYTES
            && !host.contains(|character: char| character.is_control() || character == ':');
        if !is_valid {
            let host = host.chars().take(MAX_HOST_BYTES).collect();
            return Err(AddressError::InvalidHost { host });
        }
        let name = format!("{host}:{port}");
        match self.clock.timeout(self.settings.lookup_timeout, self.net.resolve(&name)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(source)) => Err(AddressError::Lookup { host: host.to_owned(), source }),
            Err(source) => Err(AddressError::LookupTimeout { host: host.to_owned(), source }),
        }
    }
}

#[cfg(test)]
mod tests;
