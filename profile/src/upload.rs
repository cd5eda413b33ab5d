//! What came in, before anybody has looked into the profile.

use bytes::Bytes;

use crate::labels::Labels;

/// One profile as it was sent, with the labels that rules made of those sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upload {
    /// Labels as the client sent them (E1).
    pub sent: Labels,
    /// Labels after all rules, with metric and service.
    pub labels: Labels,
    /// The client's own id for this profile, if it gave one.
    pub client_id: Option<String>,
    /// Unix nanoseconds, used where the profile itself says no time (E3); 0 if unknown.
    pub time_nanos: i64,
    /// The profile: plain, gzip or zstd.
    pub pprof: Bytes,
}
