//! Answers as bytes for other nodes: JSON, compressed. Whoever reads it takes so much memory and no more.

use std::io::Read;

use athanor_chassis::{ByteSize, Code, Coded};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

/// Bytes of what is packed: of one message between nodes, less what it is wrapped in.
const PACKED: usize = 16 << 20;
/// And of what is in it.
const UNPACKED: u64 = 256 << 20;
/// Twelve times smaller than JSON, as fast as it is written.
const LEVEL: i32 = 1;
const STORED: i32 = 3;
/// Bytes that a reader keeps of what came before, as a power of two. The writer's level takes less.
const WINDOW: u32 = 23;

/// Why something is not packed, or not unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    #[error("the answer has {seen} packed, the limit is {}; ask for a shorter time", ByteSize::bytes(PACKED as u64))]
    TooLarge { seen: ByteSize },
    #[error("what came has more than {limit} unpacked, the limit; ask for less")]
    TooLong { limit: ByteSize },
    #[error("what came was not packed by a version that this one knows: {0}")]
    Unknown(#[from] serde_json::Error),
    #[error("what came is damaged: {0}")]
    Damaged(#[from] std::io::Error),
}

impl Coded for PackError {
    fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. } | Self::TooLong { .. } => Code::TooLarge,
            Self::Unknown(_) => Code::Internal,
            Self::Damaged(_) => Code::DataLoss,
        }
    }
}

pub(crate) fn pack(value: &impl Serialize) -> Result<Bytes, PackError> {
    let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
    // A digit that is wrong would be read as another watermark or time.
    encoder.include_checksum(true)?;
    serde_json::to_writer(&mut encoder, value)?;
    let packed = encoder.finish()?;
    match packed.len() <= PACKED {
        true => Ok(packed.into()),
        false => Err(PackError::TooLarge { seen: ByteSize::bytes(packed.len() as u64) }),
    }
}

pub(crate) fn unpack<T: DeserializeOwned>(packed: &[u8]) -> Result<T, PackError> {
    unpack_within(packed, UNPACKED)
}

fn unpack_within<T: DeserializeOwned>(packed: &[u8], limit: u64) -> Result<T, PackError> {
    Ok(serde_json::from_slice(&decompress(packed, limit)?)?)
}

/// What is stored for long is worth more work.
pub(crate) fn compress(bytes: &[u8]) -> Result<Bytes, PackError> {
    Ok(zstd::stream::encode_all(bytes, STORED)?.into())
}

/// At most so many bytes.
pub(crate) fn decompress(packed: &[u8], limit: u64) -> Result<Vec<u8>, PackError> {
    let mut decoder = Decoder::with_buffer(packed)?;
    decoder.window_log_max(WINDOW)?;
    let mut bytes = Vec::new();
    decoder.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= limit {
        true => Ok(bytes),
        false => Err(PackError::TooLong { limit: ByteSize::bytes(limit) }),
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::View;

    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_what_is_not_is_refused() {
        let view = View { revision: 7, ..View::default() };
        let packed = pack(&view).unwrap();
        assert_eq!(unpack::<View>(&packed).unwrap(), view);
        assert_eq!(unpack::<View>(b"nothing").unwrap_err().code(), Code::DataLoss);
        assert_eq!(unpack::<View>(&pack(&"text").unwrap()).unwrap_err().code(), Code::Internal);
        for end in 0..packed.len() {
            assert!(unpack::<View>(&packed[..end]).is_err(), "{end}");
        }
    }

    /// Of an answer of a realistic length: what says other digits is refused.
    #[test]
    fn every_flipped_bit_is_noticed_or_changes_nothing() {
        let numbers: Vec<u64> = (0..400).map(|number| number * 1_000_003).collect();
        let packed = pack(&numbers).unwrap();
        for bit in 0..packed.len() * 8 {
            let mut flipped = packed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = unpack::<Vec<u64>>(&flipped) {
                assert_eq!(read, numbers, "bit {bit}");
            }
        }
    }

    #[test]
    fn no_more_is_unpacked_than_may_be() {
        let zeros = pack(&vec![0; 1 << 20]).unwrap();
        assert!(zeros.len() < 1 << 12);
        assert_eq!(unpack_within::<Vec<u8>>(&zeros, 3 << 20).unwrap().len(), 1 << 20);
        let error = unpack_within::<Vec<u8>>(&zeros, 1 << 20).unwrap_err();
        assert_eq!(error.code(), Code::TooLarge);
        // A window larger than the writer's is none of ours.
        let mut wide = Encoder::new(Vec::new(), 1).unwrap();
        wide.window_log(WINDOW + 1).unwrap();
        std::io::Write::write_all(&mut wide, b"[]").unwrap();
        assert!(unpack::<Vec<u8>>(&wide.finish().unwrap()).is_err());
    }
}
