//! Wire format of grouped trees and of profile lists.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::Labels;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::encoding::codec::{CodecError, CodecReader, ColumnScale, put_signed_varint, put_varint};
use athanor_profile::encoding::hash::ContentHash;

use super::lists::{
    DecodeBudget, TextTable, label_texts, push_ascending, put_labels, read_labels, read_table,
};
use crate::request::profile_query::ProfileListQuery;
use crate::result::memory_size::labels_bytes;
use crate::result::profile_list::{ProfileList, ProfileListEntry};

pub(super) fn put_trees(out: &mut Vec<u8>, trees: &BTreeMap<Labels, Tree>) {
    let table = TextTable::from_texts(trees.keys().flat_map(label_texts));
    table.put(out);
    put_varint(out, trees.len() as u64);
    for (labels, tree) in trees {
        put_labels(out, labels, &table);
        tree.pack(out);
    }
}

pub(super) fn read_trees(
    unpacker: &mut CodecReader<'_>,
    claim: usize,
) -> Result<BTreeMap<Labels, Tree>, CodecError> {
    let mut budget = DecodeBudget(claim);
    let table = read_table(unpacker)?;
    let mut groups = Vec::new();
    let mut trees = Vec::new();
    for _ in 0..unpacker.read_count()? {
        let labels = read_labels(unpacker, &table, &mut budget)?;
        push_ascending(&mut groups, labels, unpacker)?;
        let tree = Tree::unpack(unpacker, budget.0)?;
        budget.take(tree.bytes(), unpacker)?;
        trees.push(tree);
    }
    Ok(groups.into_iter().zip(trees).collect())
}

pub(super) fn put_profiles(out: &mut Vec<u8>, list: &ProfileList) {
    put_varint(out, list.profiles);
    put_varint(out, u64::from(list.periods.is_some()));
    if let Some((least, most)) = list.periods {
        put_signed_varint(out, least);
        put_signed_varint(out, most);
    }
    let sets: BTreeSet<&Labels> = list.rows.iter().map(|row| &row.labels).collect();
    let table = TextTable::from_texts(sets.iter().flat_map(|labels| label_texts(labels)));
    table.put(out);
    put_varint(out, sets.len() as u64);
    sets.iter().for_each(|labels| put_labels(out, labels, &table));
    let places: BTreeMap<&Labels, u64> = sets.into_iter().zip(0..).collect();
    let scale = ColumnScale::put(out, list.rows.iter().map(|row| row.total));
    put_varint(out, list.rows.len() as u64);
    let mut before = 0;
    for ProfileListEntry { labels, time, duration, period, total, id } in &list.rows {
        put_varint(out, places[labels]);
        put_signed_varint(out, time.wrapping_sub(before));
        before = *time;
        put_signed_varint(out, *duration);
        put_signed_varint(out, *period);
        scale.put_number(out, *total);
        out.extend_from_slice(&id.to_le_bytes());
    }
}

pub(super) fn read_profiles(
    unpacker: &mut CodecReader<'_>,
    asked: &ProfileListQuery,
    claim: usize,
) -> Result<ProfileList, CodecError> {
    let mut list = ProfileList::empty(asked);
    list.profiles = unpacker.read_number()?;
    list.periods = match unpacker.read_number()? {
        0 => None,
        1 => Some((unpacker.read_signed()?, unpacker.read_signed()?)),
        _ => return Err(unpacker.error_here("neither periods nor none")),
    };
    let mut budget = DecodeBudget(claim);
    let table = read_table(unpacker)?;
    let mut sets = Vec::new();
    for _ in 0..unpacker.read_count()? {
        let labels = read_labels(unpacker, &table, &mut budget)?;
        push_ascending(&mut sets, labels, unpacker)?;
    }
    let scale = ColumnScale::read(unpacker)?;
    let count = unpacker.read_count()?;
    budget.take(ProfileList::entry_bytes(count), unpacker)?;
    let mut time = 0i64;
    for _ in 0..count {
        let wrong = unpacker.error_here("labels that were not written before");
        let place = usize::try_from(unpacker.read_number()?).map_err(|_| wrong)?;
        let labels = sets.get(place).ok_or(wrong)?.clone();
        time = time.wrapping_add(unpacker.read_signed()?);
        let duration = unpacker.read_signed()?;
        let period = unpacker.read_signed()?;
        let total = scale.read_number(unpacker)?;
        let id: [u8; 16] = unpacker.read_slice(16)?.try_into().map_err(|_| wrong)?;
        list.rows.push(ProfileListEntry {
            labels,
            time,
            duration,
            period,
            total,
            id: ContentHash::from_le_bytes(id),
        });
    }
    let of_labels: usize = sets.iter().map(labels_bytes).sum();
    if !list.is_sorted_and_truncated() || list.bytes() != ProfileList::entry_bytes(count) + of_labels {
        return Err(unpacker.error_here("profiles out of order, or labels of none"));
    }
    Ok(list)
}
