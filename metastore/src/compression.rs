//! Compressed JSON for responses to other nodes and for stored snapshots. Decoding has a memory bound.

use std::io::Read;

use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

/// Upper bound of a compressed response in bytes: one message between nodes without its envelope.
const MAX_COMPRESSED_BYTES: usize = 16 << 20;
/// Upper bound of a decompressed response in bytes.
const MAX_DECOMPRESSED_BYTES: u64 = 256 << 20;
/// Compression level of responses: twelve times smaller than JSON, at the speed of serialization.
const MESSAGE_COMPRESSION_LEVEL: i32 = 1;
const STORAGE_COMPRESSION_LEVEL: i32 = 3;
/// Base-2 logarithm of the largest window that the decoder accepts. The encoder's level uses a smaller one.
const MAX_WINDOW_LOG: u32 = 23;

/// Reason why a value could not be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompressionError {
    #[error("compressed response has {seen}, the limit is {}; request a shorter time range", ByteSize::bytes(MAX_COMPRESSED_BYTES as u64))]
    TooLarge { seen: ByteSize },
    #[error("decompressed data has more than {limit}, the limit; request less data")]
    TooLong { limit: ByteSize },
    #[error("decompressed data cannot be decoded by this version: {0}")]
    Unknown(#[from] serde_json::Error),
    #[error("compressed data is damaged: {0}")]
    Damaged(#[from] std::io::Error),
}

impl ErrorCodeExt for CompressionError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } | Self::TooLong { .. } => ErrorCode::TooLarge,
            Self::Unknown(_) => ErrorCode::Internal,
            Self::Damaged(_) => ErrorCode::DataLoss,
        }
    }
}

pub(crate) fn encode_compressed(value: &impl Serialize) -> Result<Bytes, CompressionError> {
    let mut encoder = Encoder::new(Vec::new(), MESSAGE_COMPRESSION_LEVEL)?;
    // Without a checksum, a flipped digit would be read as another watermark or timestamp.
    encoder.include_checksum(true)?;
    serde_json::to_writer(&mut encoder, value)?;
    let packed = encoder.finish()?;
    match packed.len() <= MAX_COMPRESSED_BYTES {
        true => Ok(packed.into()),
        false => Err(CompressionError::TooLarge { seen: ByteSize::bytes(packed.len() as u64) }),
    }
}

pub(crate) fn decode_compressed<T: DeserializeOwned>(packed: &[u8]) -> Result<T, CompressionError> {
    decode_compressed_within(packed, MAX_DECOMPRESSED_BYTES)
}

fn decode_compressed_within<T: DeserializeOwned>(packed: &[u8], limit: u64) -> Result<T, CompressionError> {
    Ok(serde_json::from_slice(&decompress(packed, limit)?)?)
}

/// Compresses data for storage, at a higher level than messages because it is stored for long.
pub(crate) fn compress(bytes: &[u8]) -> Result<Bytes, CompressionError> {
    Ok(zstd::stream::encode_all(bytes, STORAGE_COMPRESSION_LEVEL)?.into())
}

/// Decompresses data, up to a limit in bytes.
pub(crate) fn decompress(packed: &[u8], limit: u64) -> Result<Vec<u8>, CompressionError> {
    let mut decoder = Decoder::with_buffer(packed)?;
    decoder.window_log_max(MAX_WINDOW_LOG)?;
    let mut bytes = Vec::new();
    decoder.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= limit {
        true => Ok(bytes),
        false => Err(CompressionError::TooLong { limit: ByteSize::bytes(limit) }),
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::RoutingView;

    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_what_is_not_is_refused() {
        let view = RoutingView { revision: 7, ..RoutingView::default() };
        let packed = encode_compressed(&view).unwrap();
        assert_eq!(decode_compressed::<RoutingView>(&packed).unwrap(), view);
        assert_eq!(decode_compressed::<RoutingView>(b"nothing").unwrap_err().code(), ErrorCode::DataLoss);
        assert_eq!(
            decode_compressed::<RoutingView>(&encode_compressed(&"text").unwrap()).unwrap_err().code(),
            ErrorCode::Internal
        );
        for end in 0..packed.len() {
            assert!(decode_compressed::<RoutingView>(&packed[..end]).is_err(), "{end}");
        }
    }

    /// Of an answer of a realistic length: what says other digits is refused.
    #[test]
    fn every_flipped_bit_is_noticed_or_changes_nothing() {
        let numbers: Vec<u64> = (0..400).map(|number| number * 1_000_003).collect();
        let packed = encode_compressed(&numbers).unwrap();
        for bit in 0..packed.len() * 8 {
            let mut flipped = packed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = decode_compressed::<Vec<u64>>(&flipped) {
                assert_eq!(read, numbers, "bit {bit}");
            }
        }
    }

    #[test]
    fn no_more_is_unpacked_than_may_be() {
        let zeros = encode_compressed(&vec![0; 1 << 20]).unwrap();
        assert!(zeros.len() < 1 << 12);
        assert_eq!(decode_compressed_within::<Vec<u8>>(&zeros, 3 << 20).unwrap().len(), 1 << 20);
        let error = decode_compressed_within::<Vec<u8>>(&zeros, 1 << 20).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TooLarge);
        // A window larger than the writer's is none of ours.
        let mut wide = Encoder::new(Vec::new(), 1).unwrap();
        wide.window_log(MAX_WINDOW_LOG + 1).unwrap();
        std::io::Write::write_all(&mut wide, b"[]").unwrap();
        assert!(decode_compressed::<Vec<u8>>(&wide.finish().unwrap()).is_err());
    }
}
