//! Trees of groups and lists of profiles as bytes.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::Labels;
use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Scale, Unpacker, put, put_signed};
use athanor_profile::tree::Tree;

use super::lists::{Budget, Table, labels, push, put_labels, table, texts_of_labels};
use crate::partial::labels_bytes;
use crate::profiles::{ListedProfile, ProfileList, Profiles};

pub(super) fn put_trees(out: &mut Vec<u8>, trees: &BTreeMap<Labels, Tree>) {
    let table = Table::of(trees.keys().flat_map(texts_of_labels));
    table.put(out);
    put(out, trees.len() as u64);
    for (labels, tree) in trees {
        put_labels(out, labels, &table);
        tree.pack(out);
    }
}

pub(super) fn trees(
    unpacker: &mut Unpacker<'_>,
    claim: usize,
) -> Result<BTreeMap<Labels, Tree>, PackedError> {
    let mut budget = Budget(claim);
    let (table, mut groups, mut trees) = (table(unpacker)?, Vec::new(), Vec::new());
    for _ in 0..unpacker.count()? {
        let labels = labels(unpacker, &table, &mut budget)?;
        push(&mut groups, labels, unpacker)?;
        let tree = Tree::unpack(unpacker, budget.0)?;
        budget.take(tree.bytes(), unpacker)?;
        trees.push(tree);
    }
    Ok(groups.into_iter().zip(trees).collect())
}

pub(super) fn put_profiles(out: &mut Vec<u8>, list: &ProfileList) {
    put(out, list.profiles);
    put(out, u64::from(list.periods.is_some()));
    if let Some((least, most)) = list.periods {
        put_signed(out, least);
        put_signed(out, most);
    }
    let sets: BTreeSet<&Labels> = list.rows.iter().map(|row| &row.labels).collect();
    let table = Table::of(sets.iter().flat_map(|labels| texts_of_labels(labels)));
    table.put(out);
    put(out, sets.len() as u64);
    sets.iter().for_each(|labels| put_labels(out, labels, &table));
    let places: BTreeMap<&Labels, u64> = sets.into_iter().zip(0..).collect();
    let scale = Scale::put(out, list.rows.iter().map(|row| row.total));
    put(out, list.rows.len() as u64);
    let mut before = 0;
    for ListedProfile { labels, time, duration, period, total, id } in &list.rows {
        put(out, places[labels]);
        put_signed(out, time.wrapping_sub(before));
        before = *time;
        put_signed(out, *duration);
        put_signed(out, *period);
        scale.put_number(out, *total);
        out.extend_from_slice(&id.to_le_bytes());
    }
}

pub(super) fn profiles(
    unpacker: &mut Unpacker<'_>,
    asked: &Profiles,
    claim: usize,
) -> Result<ProfileList, PackedError> {
    let mut list = ProfileList::none(asked);
    list.profiles = unpacker.number()?;
    list.periods = match unpacker.number()? {
        0 => None,
        1 => Some((unpacker.signed()?, unpacker.signed()?)),
        _ => return Err(unpacker.wrong("neither periods nor none")),
    };
    let mut budget = Budget(claim);
    let (table, mut sets) = (table(unpacker)?, Vec::new());
    for _ in 0..unpacker.count()? {
        let labels = labels(unpacker, &table, &mut budget)?;
        push(&mut sets, labels, unpacker)?;
    }
    let scale = Scale::read(unpacker)?;
    let count = unpacker.count()?;
    budget.take(ProfileList::bytes_of_rows(count), unpacker)?;
    let mut time = 0i64;
    for _ in 0..count {
        let wrong = unpacker.wrong("labels that were not written before");
        let place = usize::try_from(unpacker.number()?).map_err(|_| wrong)?;
        let labels = sets.get(place).ok_or(wrong)?.clone();
        time = time.wrapping_add(unpacker.signed()?);
        let (duration, period) = (unpacker.signed()?, unpacker.signed()?);
        let total = scale.number(unpacker)?;
        let id: [u8; 16] = unpacker.take(16)?.try_into().map_err(|_| wrong)?;
        list.rows.push(ListedProfile { labels, time, duration, period, total, id: Hash::from_le_bytes(id) });
    }
    let of_labels: usize = sets.iter().map(labels_bytes).sum();
    if !list.is_settled() || list.bytes() != ProfileList::bytes_of_rows(count) + of_labels {
        return Err(unpacker.wrong("profiles out of order, or labels of none"));
    }
    Ok(list)
}
