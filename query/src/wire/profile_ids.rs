//! Wire format of profile ids, by place. Ids are random, so they are stored without compression.

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use crate::dedup::{ProfileIdsBySource, SourceId};

/// Encoded size of an id.
const ENCODED_ID_BYTES: usize = size_of::<ContentHash>();

const EXCESS_IDS_ERROR: &str = "more ids than were said";

const HEAD_SOURCE_TAG: u8 = 0;
const BLOCK_SOURCE_TAG: u8 = 1;

pub(super) fn put_ids(out: &mut Vec<u8>, ids: &ProfileIdsBySource) {
    put_varint(out, ids.by_source().len() as u64);
    for (place, ids) in ids.by_source() {
        match place {
            SourceId::Head { shard, n } => {
                out.push(HEAD_SOURCE_TAG);
                put_varint(out, u64::from(*shard));
                put_varint(out, u64::from(*n));
            }
            SourceId::Block(number) => {
                out.push(BLOCK_SOURCE_TAG);
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        put_id_list(out, ids);
    }
}

/// Decodes the output of [`put_ids`]. Places must be in ascending order.
pub(super) fn read_ids(
    unpacker: &mut CodecReader<'_>,
    claim: usize,
) -> Result<ProfileIdsBySource, CodecError> {
    let count = unpacker.read_count()?;
    let mut all: Vec<(SourceId, Vec<ContentHash>)> = Vec::new();
    let mut taken = 0;
    for _ in 0..count {
        let place = match unpacker.read_slice(1)?[0] {
            HEAD_SOURCE_TAG => SourceId::Head { shard: unpacker.read_u32()?, n: unpacker.read_u32()? },
            BLOCK_SOURCE_TAG => SourceId::Block(id(unpacker)?),
            _ => return Err(unpacker.error_here("neither a head nor a block")),
        };
        if all.last().is_some_and(|(before, _)| *before >= place) {
            return Err(unpacker.error_here("places out of order"));
        }
        let ids = read_id_list(unpacker, claim - taken)?;
        taken += ProfileIdsBySource::list_bytes(ids.len());
        if taken > claim {
            return Err(unpacker.error_here(EXCESS_IDS_ERROR));
        }
        all.push((place, ids));
    }
    Ok(all.into_iter().collect())
}

pub(super) fn put_id_list(out: &mut Vec<u8>, ids: &[ContentHash]) {
    put_varint(out, ids.len() as u64);
    out.reserve(ids.len() * ENCODED_ID_BYTES);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}

pub(super) fn read_id_list(
    unpacker: &mut CodecReader<'_>,
    claim: usize,
) -> Result<Vec<ContentHash>, CodecError> {
    let length = unpacker.read_count()?.saturating_mul(ENCODED_ID_BYTES);
    if length > claim {
        return Err(unpacker.error_here(EXCESS_IDS_ERROR));
    }
    let bytes = unpacker.read_slice(length)?;
    Ok(bytes.as_chunks().0.iter().map(|id| ContentHash::from_le_bytes(*id)).collect())
}

fn id(unpacker: &mut CodecReader<'_>) -> Result<ContentHash, CodecError> {
    let mut bytes = [0; ENCODED_ID_BYTES];
    bytes.copy_from_slice(unpacker.read_slice(ENCODED_ID_BYTES)?);
    Ok(ContentHash::from_le_bytes(bytes))
}
