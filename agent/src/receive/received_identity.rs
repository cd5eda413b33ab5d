//! Identity of received profiles.
//!
//! A server recognizes a retry by the profile's id or time. The agent retries, so a profile needs one of them. If
//! the client gave an id or a time, the agent must not add another one: the client may retry through another
//! agent, and the retry must be the same upload. If the client gave neither, no server recognizes its retries
//! anyway, and the agent gives both.

use std::sync::Arc;

use athanor_chassis::{Clock, Random, Timestamp};
use athanor_profile::formats::pprof::{Inflater, time_nanos};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::scrape::{BodyCheck, append_time};
use crate::upload::push_series::format_uuid;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Upper bound of the plain bytes of a profile that is decompressed in memory.
const MAX_INFLATED_BYTES: usize = 64 << 20;
/// Upper bound of the plain bytes of a profile that is decompressed in pieces.
const MAX_WALKED_BYTES: u64 = 512 << 20;
/// Bytes that are checked in one step.
const CHECK_STEP_BYTES: usize = 8 << 10;

/// Time of a received profile, as far as its bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnTime {
    /// The profile has a time.
    Present,
    /// The profile is valid and has no time.
    Absent,
    /// The bytes are no readable profile, or none at all. No server stores them, so they need no identity.
    Unreadable,
}

/// Returns whether a pprof has a time. Plain and gzip bytes are walked without a copy.
pub(super) fn own_time(pprof: &[u8]) -> OwnTime {
    if pprof.is_empty() {
        return OwnTime::Unreadable;
    }
    let mut check = BodyCheck::new(MAX_WALKED_BYTES);
    let walked = pprof.chunks(CHECK_STEP_BYTES).try_for_each(|chunk| check.push(chunk));
    let time = match walked.and_then(|()| check.finish()) {
        Ok(summary) => Some(summary.time_nanos),
        // zstd, or a form that only the server's reader accepts.
        Err(_) => {
            let mut inflater = Inflater::default();
            inflater.inflate(pprof, MAX_INFLATED_BYTES).ok().and_then(|plain| time_nanos(plain).ok())
        }
    };
    match time {
        None => OwnTime::Unreadable,
        Some(0) => OwnTime::Absent,
        Some(_) => OwnTime::Present,
    }
}

/// Returns whether a client's id counts for servers. An empty id and one of zeros do not.
pub(super) fn is_client_id(id: &str) -> bool {
    !id.bytes().all(|byte| matches!(byte, b'0' | b'-'))
}

/// Source of ids and times for profiles that have neither.
#[derive(Clone)]
pub(super) struct IdentitySource {
    clock: Clock,
    random: Random,
    given: Arc<Mutex<GivenTimes>>,
}

#[derive(Default)]
struct GivenTimes {
    last_nanos: i64,
    count: u64,
}

impl IdentitySource {
    pub(super) fn new(clock: Clock, random: Random) -> Self {
        Self { clock, random, given: Arc::default() }
    }

    /// Returns the number of profiles that got a time.
    pub(super) fn given(&self) -> u64 {
        self.given.lock().count
    }

    /// Returns a time that this source never returned before. `/ingest` carries no id, so only the time tells
    /// equal profiles apart.
    pub(super) fn unique_time(&self) -> Timestamp {
        let now = self.clock.wall().nanos();
        let mut given = self.given.lock();
        given.last_nanos = now.max(given.last_nanos.saturating_add(1));
        given.count += 1;
        Timestamp::from_nanos(given.last_nanos)
    }

    /// Returns a random UUID.
    pub(super) fn uuid(&self) -> String {
        format_uuid(self.random.next_id())
    }

    /// Returns 16 random bytes, not all zero.
    pub(super) fn id_bytes(&self) -> [u8; 16] {
        (self.random.next_id() | 1).to_be_bytes()
    }

    /// Returns a profile with a time. In protobuf the last value of a field wins, and gzip members and zstd
    /// frames are one stream, so the bytes of the profile stay as they are.
    pub(super) fn with_time(&self, pprof: &Bytes) -> Bytes {
        let mut profile = pprof.to_vec();
        let time = self.unique_time();
        if pprof.starts_with(&ZSTD_MAGIC) {
            let mut field = Vec::new();
            append_time(&mut field, time, false);
            append_zstd_frame(&mut profile, &field);
        } else {
            append_time(&mut profile, time, pprof.starts_with(&GZIP_MAGIC));
        }
        profile.into()
    }
}

/// Appends a frame with one uncompressed block of up to 255 bytes.
fn append_zstd_frame(out: &mut Vec<u8>, content: &[u8]) {
    let length = content.len() as u8;
    out.extend_from_slice(&ZSTD_MAGIC);
    // A single segment with a content size of one byte, then the header of the last block.
    out.extend_from_slice(&[0x20, length]);
    let block = u32::from(length) << 3 | 1;
    out.extend_from_slice(&block.to_le_bytes()[..3]);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use athanor_profile::formats::pprof::{gzip, inflate};
    use athanor_proto::google::v1::{Profile, ValueType};
    use prost::Message;

    use super::*;

    const NOW: i64 = 1_800_000_000_000_000_000;

    fn source() -> IdentitySource {
        IdentitySource::new(Clock::manual(Timestamp::from_nanos(NOW)).0, Random::from_seed(1))
    }

    fn pprof(time_nanos: i64) -> Vec<u8> {
        let sample_type = vec![ValueType { r#type: 1, unit: 0 }];
        let string_table = vec!["".into(), "cpu".into()];
        Profile { sample_type, string_table, time_nanos, ..Profile::default() }.encode_to_vec()
    }

    #[test]
    fn time_is_found_in_each_encoding() {
        for (nanos, expected) in [(0, OwnTime::Absent), (5, OwnTime::Present)] {
            let plain = pprof(nanos);
            let zstd = [&[][..], &zstd_frame(&plain)].concat();
            for encoded in [plain.clone(), gzip(&plain), zstd] {
                assert_eq!(own_time(&encoded), expected);
            }
        }
        for damaged in [&b""[..], b"\x1f\x8bxx", b"text", &ZSTD_MAGIC] {
            assert_eq!(own_time(damaged), OwnTime::Unreadable, "{damaged:?}");
        }
    }

    fn zstd_frame(content: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        append_zstd_frame(&mut frame, content);
        frame
    }

    #[test]
    fn added_time_keeps_the_bytes_of_the_profile() {
        let plain = pprof(0);
        for encoded in [plain.clone(), gzip(&plain), zstd_frame(&plain)] {
            let timed = source().with_time(&Bytes::from(encoded.clone()));
            assert!(timed.starts_with(&encoded));
            let decoded = Profile::decode(&inflate(&timed, 1 << 20).unwrap()[..]).unwrap();
            assert_eq!(decoded.time_nanos, NOW);
            assert_eq!(Profile { time_nanos: 0, ..decoded }.encode_to_vec(), plain);
        }
    }

    #[test]
    fn times_of_equal_profiles_differ() {
        let source = source();
        assert_eq!([source.unique_time().nanos(), source.clone().unique_time().nanos()], [NOW, NOW + 1]);
        assert!(source.uuid() != source.uuid());
    }

    #[test]
    fn nil_ids_do_not_count() {
        assert!(!is_client_id("") && !is_client_id("00000000-0000-0000-0000-000000000000"));
        assert!(is_client_id("00000000-0000-0000-0000-000000000001") && is_client_id("x"));
    }
}
