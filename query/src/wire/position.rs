//! Wire format of profile positions and ids.

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_signed_varint};
use athanor_profile::encoding::hash::ContentHash;

use crate::request::profile_position::ProfilePosition;

pub(super) fn put_position(out: &mut Vec<u8>, ProfilePosition { time, id }: ProfilePosition) {
    put_signed_varint(out, time);
    out.extend_from_slice(&id.to_le_bytes());
}

pub(super) fn read_position(reader: &mut CodecReader<'_>) -> Result<ProfilePosition, CodecError> {
    Ok(ProfilePosition { time: reader.read_signed()?, id: read_id(reader)? })
}

pub(super) fn read_id(reader: &mut CodecReader<'_>) -> Result<ContentHash, CodecError> {
    read_array(reader).map(ContentHash::from_le_bytes)
}

pub(super) fn read_array<const N: usize>(reader: &mut CodecReader<'_>) -> Result<[u8; N], CodecError> {
    let short = reader.error_here("truncated number");
    reader.read_slice(N)?.try_into().map_err(|_| short)
}
