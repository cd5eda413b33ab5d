//! Names of spool files. A name contains all that eviction and queueing need, so a start reads no file.

use std::fmt;
use std::str::FromStr;

use athanor_chassis::{TenantId, Timestamp};

use crate::upload::{UploadOrder, UploadOrigin, UploadRoute};

/// Number of lanes of cumulative uploads of one tenant, route and origin. The lane of a series must not change
/// between versions, because the files of an earlier version may wait in the spool.
pub const CUMULATIVE_LANES: u8 = 16;
pub(super) const FILE_SUFFIX: &str = ".spool";
pub(super) const DAMAGED_SUFFIX: &str = ".damaged";

/// Name of a spool file. It contains a hash of the tenant, but neither its name nor labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolFileName {
    /// Position in the order of creation.
    pub sequence: u64,
    /// Origin of all uploads in the file.
    pub origin: UploadOrigin,
    /// Method of the server of all requests in the file.
    pub route: RouteKind,
    /// Order of delivery.
    pub order: OrderClass,
    /// Hash of the tenant.
    pub tenant: TenantHash,
    /// Number of profiles.
    pub profiles: u32,
    /// Latest time of the profiles, in milliseconds since 1970.
    pub time_millis: i64,
}

/// Method of the server, without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// `push.v1.PusherService/Push`.
    Push,
    /// `POST /ingest`.
    Ingest,
    /// OpenTelemetry export of profiles.
    Otlp,
}

/// Short hash of a tenant. Tenants with equal hashes only wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantHash(u32);

/// Order of delivery of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderClass {
    /// Any order.
    Independent,
    /// In the order of creation among the files of one tenant, route, origin and lane, one at a time. All uploads
    /// of a series are in one lane, so no snapshot overtakes an earlier one.
    Cumulative {
        /// Number of the lane, below [`CUMULATIVE_LANES`].
        lane: u8,
    },
}

/// Failure to parse the name of a spool file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a spool file")]
pub struct FileNameError(String);

// === impl RouteKind ===

impl RouteKind {
    const ALL: [Self; 3] = [Self::Push, Self::Ingest, Self::Otlp];

    /// Returns the kind of a route.
    pub fn from_route(route: &UploadRoute) -> Self {
        match route {
            UploadRoute::Push => Self::Push,
            UploadRoute::Ingest { .. } => Self::Ingest,
            UploadRoute::Otlp => Self::Otlp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Ingest => "ingest",
            Self::Otlp => "otlp",
        }
    }
}

// === impl TenantHash ===

impl TenantHash {
    /// Returns the hash of a tenant. None is the tenant of the server's settings.
    pub fn from_tenant(tenant: Option<&TenantId>) -> Self {
        Self(tenant.map_or(0, |tenant| crc32fast::hash(tenant.as_str().as_bytes())))
    }
}

// === impl OrderClass ===

impl OrderClass {
    /// Returns the class of uploads with the given constraint.
    pub fn from_upload(order: UploadOrder) -> Self {
        match order {
            UploadOrder::Independent => Self::Independent,
            UploadOrder::Cumulative(series) => {
                Self::Cumulative { lane: (series % u64::from(CUMULATIVE_LANES)) as u8 }
            }
        }
    }
}

// === impl SpoolFileName ===

impl SpoolFileName {
    /// Returns the latest time of the profiles.
    pub fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.time_millis.saturating_mul(1_000_000))
    }

    /// Parses the name of a file in quarantine.
    pub fn from_damaged_name(text: &str) -> Result<Self, FileNameError> {
        let name = text.strip_suffix(DAMAGED_SUFFIX).ok_or_else(|| FileNameError(text.to_owned()))?;
        name.parse()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(FILE_SUFFIX)?.split('-');
        let sequence = parts.next()?.parse().ok()?;
        let origin = match parts.next()? {
            "scraped" => UploadOrigin::Scraped,
            "received" => UploadOrigin::Received,
            _ => return None,
        };
        let route = parts.next()?;
        let route = RouteKind::ALL.into_iter().find(|kind| kind.name() == route)?;
        let order = match parts.next()? {
            "delta" => OrderClass::Independent,
            lane => {
                let lane = lane.strip_prefix("cumulative")?.parse().ok()?;
                OrderClass::Cumulative { lane: Some(lane).filter(|lane| *lane < CUMULATIVE_LANES)? }
            }
        };
        let tenant = TenantHash(u32::from_str_radix(parts.next()?, 16).ok()?);
        let profiles = parts.next()?.parse().ok()?;
        let time_millis = u64::from_str_radix(parts.next()?, 16).ok()?.cast_signed();
        let name = Self { sequence, origin, route, order, tenant, profiles, time_millis };
        // One spelling only: a second name of the same number would be a second file.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for SpoolFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            UploadOrigin::Scraped => "scraped",
            UploadOrigin::Received => "received",
        };
        write!(f, "{:020}-{origin}-{}-", self.sequence, self.route.name())?;
        match self.order {
            OrderClass::Independent => f.write_str("delta")?,
            OrderClass::Cumulative { lane } => write!(f, "cumulative{lane}")?,
        }
        write!(f, "-{:08x}-{}-{:016x}{FILE_SUFFIX}", self.tenant.0, self.profiles, self.time_millis)
    }
}

impl FromStr for SpoolFileName {
    type Err = FileNameError;

    fn from_str(text: &str) -> Result<Self, FileNameError> {
        Self::parse(text).ok_or_else(|| FileNameError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_written_and_sort_by_sequence() {
        let mut names = Vec::new();
        let tenant = TenantHash::from_tenant(Some(&"team-a".parse().unwrap()));
        assert_ne!(tenant, TenantHash::from_tenant(None));
        for (sequence, origin) in [(7, UploadOrigin::Scraped), (u64::MAX, UploadOrigin::Received)] {
            for order in [OrderClass::Independent, OrderClass::from_upload(UploadOrder::Cumulative(22))] {
                let time_millis = -(sequence as i64 % 5);
                let route = RouteKind::ALL[names.len() % 3];
                let name = SpoolFileName { sequence, origin, route, order, tenant, profiles: 3, time_millis };
                assert_eq!(name.to_string().parse(), Ok(name));
                assert_eq!(SpoolFileName::from_damaged_name(&format!("{name}{DAMAGED_SUFFIX}")), Ok(name));
                names.push(name.to_string());
            }
        }
        assert!(names[0] < names[2] && names[1] < names[3]);
        assert_eq!(
            names[1],
            "00000000000000000007-scraped-ingest-cumulative6-a9a9d57d-3-fffffffffffffffe.spool"
        );
    }

    #[test]
    fn other_names_are_rejected() {
        for text in [
            "",
            "7-scraped-push-delta-00000000-1-0000000000000000.spool",
            "00000000000000000007-scraped-push-cumulative16-00000000-1-0000000000000000.spool",
            "00000000000000000007-scraped-push-delta-00000000-1-0000000000000000",
            "00000000000000000007-scraped-push-delta-00000000-1-0000000000000000-9.spool",
            "00000000000000000007-scraped-push-delta-0-1-0000000000000000.spool",
            "00000000000000000007-scraped-pull-delta-00000000-1-0000000000000000.spool",
            "00000000000000000007-taken-push-delta-00000000-1-0000000000000000.spool",
        ] {
            assert!(text.parse::<SpoolFileName>().is_err(), "{text}");
        }
    }
}
