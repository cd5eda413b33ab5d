//! Upload as received, before the profile is decoded.

use bytes::Bytes;

use crate::data_model::labels::Labels;

/// Profile as sent, with the labels after relabeling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileUpload {
    /// Labels as the client sent them [INV-01].
    pub sent: Labels,
    /// Labels after all rules, with metric and service.
    pub labels: Labels,
    /// Id that the client gave this profile, if any.
    pub client_id: Option<String>,
    /// Unix nanoseconds, used if the profile itself states no time [INV-03]; 0 if unknown.
    pub time_nanos: i64,
    /// Random id, drawn once by the distributor. It distinguishes uploads that have neither id nor time
    /// [INV-03], on every shard leader that they are sent to and on every retry.
    pub drawn: u128,
    /// Receive time of the request by the distributor's clock, Unix nanoseconds. It is the time of a profile
    /// if neither profile nor request states one. 0 if unknown; then the shard's clock is used.
    pub received_nanos: i64,
    /// Set if the client states that addresses are those of the ELF files. Not part of the identity.
    pub has_elf_addresses: bool,
    /// Profile bytes: plain, gzip or zstd.
    pub pprof: Bytes,
}
