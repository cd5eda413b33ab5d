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
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<BTreeMap<Labels, Tree>, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let table = read_table(reader)?;
    let mut groups = Vec::new();
    let mut trees = Vec::new();
    for _ in 0..reader.read_count()? {
        let labels = read_labels(reader, &table, &mut budget)?;
        push_ascending(&mut groups, labels, reader)?;
        let tree = Tree::unpack(reader, budget.0)?;
        budget.take(tree.bytes(), reader)?;
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
    let positions: BTreeMap<&Labels, u64> = sets.into_iter().zip(0..).collect();
    let scale = ColumnScale::put(out, list.rows.iter().map(|row| row.total));
    put_varint(out, list.rows.len() as u64);
    let mut before = 0;
    for ProfileListEntry { labels, time, duration, period, total, id } in &list.rows {
        put_varint(out, positions[labels]);
        put_signed_varint(out, time.wrapping_sub(before));
        before = *time;
        put_signed_varint(out, *duration);
        put_signed_varint(out, *period);
        scale.put_number(out, *total);
        out.extend_from_slice(&id.to_le_bytes());
    }
}

pub(super) fn read_profiles(
    reader: &mut CodecReader<'_>,
    query: &ProfileListQuery,
    declared_bytes: usize,
) -> Result<ProfileList, CodecError> {
    let mut list = ProfileList::empty(query);
    list.profiles = reader.read_number()?;
    list.periods = match reader.read_number()? {
        0 => None,
        1 => Some((reader.read_signed()?, reader.read_signed()?)),
        _ => return Err(reader.error_here("invalid flag of periods")),
    };
    let mut budget = DecodeBudget(declared_bytes);
    let table = read_table(reader)?;
    let mut sets = Vec::new();
    for _ in 0..reader.read_count()? {
        let labels = read_labels(reader, &table, &mut budget)?;
        push_ascending(&mut sets, labels, reader)?;
    }
    let scale = ColumnScale::read(reader)?;
    let count = reader.read_count()?;
    budget.take(ProfileList::entry_bytes(count), reader)?;
    let mut time = 0i64;
    for _ in 0..count {
        let unknown = reader.error_here("reference to unknown labels");
        let position = usize::try_from(reader.read_number()?).map_err(|_| unknown)?;
        let labels = sets.get(position).ok_or(unknown)?.clone();
        time = time.wrapping_add(reader.read_signed()?);
        let duration = reader.read_signed()?;
        let period = reader.read_signed()?;
        let total = scale.read_number(reader)?;
        let id: [u8; 16] = reader.read_slice(16)?.try_into().map_err(|_| unknown)?;
        list.rows.push(ProfileListEntry {
            labels,
            time,
            duration,
            period,
            total,
            id: ContentHash::from_le_bytes(id),
        });
    }
    let label_bytes: usize = sets.iter().map(labels_bytes).sum();
    if !list.is_sorted_and_truncated() || list.bytes() != ProfileList::entry_bytes(count) + label_bytes {
        return Err(reader.error_here("profiles out of order, or unused labels"));
    }
    Ok(list)
}
