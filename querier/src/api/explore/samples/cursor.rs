//! Cursors of samples: place in the rows of a query, for a client that continues later.

use std::time::Duration;

use athanor_arrow_format::SamplePosition;
use athanor_chassis::units::format_duration;
use athanor_chassis::{Status, Timestamp};
use athanor_profile::encoding::hash::{ContentHash, hash_bytes};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::validate::invalid_argument;

/// Age at which a cursor expires. Retention and label rules may change the rows of older ones.
const CURSOR_LIFETIME: Duration = Duration::from_hours(24);
/// Version of the format.
const CURSOR_VERSION: u8 = 1;
/// Bytes of a cursor: version, query, time of issue, timestamp, profile, rows and checksum.
const CURSOR_BYTES: usize = 1 + 16 + 8 + 8 + 16 + 8 + 8;

/// Encodes the cursor of a place. `query` is the hash of tenants and query.
pub(super) fn encode_cursor(query: ContentHash, now: Timestamp, position: SamplePosition) -> String {
    let mut bytes = Vec::with_capacity(CURSOR_BYTES);
    bytes.push(CURSOR_VERSION);
    bytes.extend_from_slice(&query.to_le_bytes());
    bytes.extend_from_slice(&now.nanos().to_le_bytes());
    bytes.extend_from_slice(&position.time.to_le_bytes());
    bytes.extend_from_slice(&position.profile.to_le_bytes());
    bytes.extend_from_slice(&position.rows.to_le_bytes());
    bytes.extend_from_slice(&checksum(&bytes));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a cursor of the same tenants and query.
pub(super) fn decode_cursor(
    text: &str,
    query: ContentHash,
    now: Timestamp,
) -> Result<SamplePosition, Status> {
    let damaged = || {
        invalid_argument(format!(
            "cursor has {} characters and is no cursor of this server; send the text of the column cursor unchanged",
            text.len()
        ))
    };
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
    let mut rest = bytes.as_slice();
    let version = take::<1>(&mut rest).ok_or_else(damaged)?;
    let issued_query = take(&mut rest).map(ContentHash::from_le_bytes).ok_or_else(damaged)?;
    let issued_at = take(&mut rest).map(i64::from_le_bytes).ok_or_else(damaged)?;
    let position = read_position(&mut rest).ok_or_else(damaged)?;
    let content = &bytes[..bytes.len() - rest.len()];
    if version != [CURSOR_VERSION] || rest != checksum(content) {
        return Err(damaged());
    }
    if issued_query != query {
        return Err(invalid_argument(
            "cursor belongs to another query or tenant, or to other columns; send the request of the first page, or no cursor to start over",
        ));
    }
    let age = Duration::from_nanos(now.nanos().saturating_sub(issued_at).max(0).unsigned_abs());
    if age > CURSOR_LIFETIME {
        return Err(invalid_argument(format!(
            "cursor is {} old and expired after {}; send no cursor to start over, or query.start at the time of the last row",
            format_duration(age),
            format_duration(CURSOR_LIFETIME)
        )));
    }
    Ok(position)
}

fn read_position(rest: &mut &[u8]) -> Option<SamplePosition> {
    Some(SamplePosition {
        time: i64::from_le_bytes(take(rest)?),
        profile: ContentHash::from_le_bytes(take(rest)?),
        rows: u64::from_le_bytes(take(rest)?),
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

fn checksum(content: &[u8]) -> [u8; 8] {
    (hash_bytes(content) as u64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_POSITION: SamplePosition = SamplePosition { time: -5, profile: 7, rows: 9 };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn cursor_reads_back_for_its_query() {
        let text = encode_cursor(3, at(10), TEST_POSITION);
        assert_eq!(decode_cursor(&text, 3, at(20)), Ok(TEST_POSITION));
        assert_eq!(decode_cursor(&text, 3, at(0)), Ok(TEST_POSITION));
    }

    #[test]
    fn refused_cursor_says_why() {
        let text = encode_cursor(3, at(10), TEST_POSITION);
        let refusal = |text: &str, query, now| decode_cursor(text, query, now).unwrap_err().message;
        assert!(refusal(&text, 4, at(20)).contains("another query or tenant"));
        let expired = refusal(&text, 3, at(11 + 24 * 3600));
        assert!(expired.contains("expired after") && expired.contains("start over"), "{expired}");
        for broken in ["", "x", "é", &text[1..], &format!("{text}AA")] {
            assert!(refusal(broken, 3, at(20)).contains("no cursor of this server"), "{broken}");
        }
        let mut changed = text.into_bytes();
        changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(refusal(&changed, 3, at(20)).contains("no cursor of this server"));
    }
}
