//! Wire format of profile ids, by source. Ids are random, so they are stored without compression.

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use crate::dedup::{ProfileIdsBySource, SourceId};

/// Encoded size of an id.
const ENCODED_ID_BYTES: usize = size_of::<ContentHash>();

const EXCESS_IDS_ERROR: &str = "ids exceed the declared size of the result";

const HEAD_SOURCE_TAG: u8 = 0;
const BLOCK_SOURCE_TAG: u8 = 1;

pub(super) fn put_ids(out: &mut Vec<u8>, ids: &ProfileIdsBySource) {
    put_varint(out, ids.by_source().len() as u64);
    for (source, ids) in ids.by_source() {
        match source {
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

/// Decodes the output of [`put_ids`]. Sources must be in ascending order.
pub(super) fn read_ids(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<ProfileIdsBySource, CodecError> {
    let count = reader.read_count()?;
    let mut all: Vec<(SourceId, Vec<ContentHash>)> = Vec::new();
    let mut id_bytes = 0;
    for _ in 0..count {
        let source = match reader.read_slice(1)?[0] {
            HEAD_SOURCE_TAG => SourceId::Head { shard: reader.read_u32()?, n: reader.read_u32()? },
            BLOCK_SOURCE_TAG => SourceId::Block(id(reader)?),
            _ => return Err(reader.error_here("unknown kind of source")),
        };
        if all.last().is_some_and(|(before, _)| *before >= source) {
            return Err(reader.error_here("sources out of order"));
        }
        let ids = read_id_list(reader, declared_bytes - id_bytes)?;
        id_bytes += ProfileIdsBySource::list_bytes(ids.len());
        if id_bytes > declared_bytes {
            return Err(reader.error_here(EXCESS_IDS_ERROR));
        }
        all.push((source, ids));
    }
    Ok(all.into_iter().collect())
}

pub(super) fn put_id_list(out: &mut Vec<u8>, ids: &[ContentHash]) {
    put_varint(out, ids.len() as u64);
    out.reserve(ids.len() * ENCODED_ID_BYTES);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}

pub(super) fn read_id_list(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<Vec<ContentHash>, CodecError> {
    let length = reader.read_count()?.saturating_mul(ENCODED_ID_BYTES);
    if length > declared_bytes {
        return Err(reader.error_here(EXCESS_IDS_ERROR));
    }
    let bytes = reader.read_slice(length)?;
    Ok(bytes.as_chunks().0.iter().map(|id| ContentHash::from_le_bytes(*id)).collect())
}

fn id(reader: &mut CodecReader<'_>) -> Result<ContentHash, CodecError> {
    let mut bytes = [0; ENCODED_ID_BYTES];
    bytes.copy_from_slice(reader.read_slice(ENCODED_ID_BYTES)?);
    Ok(ContentHash::from_le_bytes(bytes))
}
