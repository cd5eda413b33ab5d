//! Ids of profiles as bytes, each as it is: they are random. Lists of them, by the place where the profiles lie.

use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Unpacker, put};

use crate::doubles::{Ids, Place};

/// What an id takes.
const ID: usize = size_of::<Hash>();

const MORE: &str = "more ids than were said";

const HEAD: u8 = 0;
const BLOCK: u8 = 1;

pub(super) fn put_ids(out: &mut Vec<u8>, ids: &Ids) {
    put(out, ids.places().len() as u64);
    for (place, ids) in ids.places() {
        match place {
            Place::Head { shard, n } => {
                out.push(HEAD);
                put(out, u64::from(*shard));
                put(out, u64::from(*n));
            }
            Place::Block(number) => {
                out.push(BLOCK);
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        put_list(out, ids);
    }
}

/// Reads what [`put_ids`] wrote, places in their order, each with ids in theirs.
pub(super) fn ids(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<Ids, PackedError> {
    let count = unpacker.count()?;
    let mut all: Vec<(Place, Vec<Hash>)> = Vec::new();
    let mut taken = 0;
    for _ in 0..count {
        let place = match unpacker.take(1)?[0] {
            HEAD => Place::Head { shard: unpacker.small()?, n: unpacker.small()? },
            BLOCK => Place::Block(id(unpacker)?),
            _ => return Err(unpacker.wrong("neither a head nor a block")),
        };
        if all.last().is_some_and(|(before, _)| *before >= place) {
            return Err(unpacker.wrong("places out of order"));
        }
        let ids = list(unpacker, claim - taken)?;
        taken += Ids::bytes_of(ids.len());
        if taken > claim {
            return Err(unpacker.wrong(MORE));
        }
        all.push((place, ids));
    }
    Ok(all.into_iter().collect())
}

pub(super) fn put_list(out: &mut Vec<u8>, ids: &[Hash]) {
    put(out, ids.len() as u64);
    out.reserve(ids.len() * ID);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}

pub(super) fn list(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<Vec<Hash>, PackedError> {
    let length = unpacker.count()?.saturating_mul(ID);
    if length > claim {
        return Err(unpacker.wrong(MORE));
    }
    let bytes = unpacker.take(length)?;
    Ok(bytes.as_chunks().0.iter().map(|id| Hash::from_le_bytes(*id)).collect())
}

fn id(unpacker: &mut Unpacker<'_>) -> Result<Hash, PackedError> {
    let mut bytes = [0; ID];
    bytes.copy_from_slice(unpacker.take(ID)?);
    Ok(Hash::from_le_bytes(bytes))
}
