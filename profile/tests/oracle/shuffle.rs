//! The same profile in other bytes: tables in another order, other ids, other string indices.

use std::collections::BTreeMap;

use athanor_profile::generate::SeededRandom;

use crate::message::{Profile, ValueType};

/// Changes all that has no meaning, and splits a row in two.
pub fn shuffle(profile: &mut Profile, random: &mut SeededRandom) {
    strings(profile, random);
    let mut fresh = ids(random, profile.function.iter().map(|entry| entry.id));
    profile.function.iter_mut().for_each(|entry| entry.id = fresh[&entry.id]);
    let lines = profile.location.iter_mut().flat_map(|location| &mut location.line);
    lines.for_each(|line| line.function_id = fresh[&line.function_id]);
    fresh = ids(random, profile.mapping.iter().map(|entry| entry.id));
    profile.mapping.iter_mut().for_each(|entry| entry.id = fresh[&entry.id]);
    for location in profile.location.iter_mut().filter(|location| location.mapping_id != 0) {
        location.mapping_id = fresh[&location.mapping_id];
    }
    fresh = ids(random, profile.location.iter().map(|entry| entry.id));
    profile.location.iter_mut().for_each(|entry| entry.id = fresh[&entry.id]);
    for sample in &mut profile.sample {
        sample.location_id.iter_mut().for_each(|id| *id = fresh[id]);
        random.shuffle(&mut sample.label);
    }
    profile.sample.iter_mut().for_each(|sample| random.shuffle(&mut sample.moment));
    if let Some(mut half) = profile.sample.first().cloned() {
        half.moment = profile.sample[0].moment.split_off(random.next_below(1 + half.moment.len()));
        for (left, right) in profile.sample[0].value.iter_mut().zip(&mut half.value) {
            let part = random.next_below(1000) as i64;
            // Content does not add up beyond 64 bits, so the parts must not either.
            let rest = left.checked_sub(part);
            *right = if rest.is_some() { part } else { 0 };
            *left = rest.unwrap_or(*left);
        }
        profile.sample.push(half);
    }
    random.shuffle(&mut profile.sample);
    random.shuffle(&mut profile.function);
    random.shuffle(&mut profile.mapping);
    random.shuffle(&mut profile.location);
}

/// New ids, dense or sparse.
fn ids(random: &mut SeededRandom, old: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
    let old: Vec<u64> = old.collect();
    let step = [1, 3, 1 << 40][random.next_below(3)];
    let mut fresh: Vec<u64> = (1..=old.len() as u64).map(|id| id * step).collect();
    random.shuffle(&mut fresh);
    old.into_iter().zip(fresh).collect()
}

/// Puts the strings in another order, some of them twice.
fn strings(profile: &mut Profile, random: &mut SeededRandom) {
    let mut table: Vec<usize> = (1..profile.string_table.len()).collect();
    let twice: Vec<usize> = table.iter().copied().filter(|_| random.next_bool(200)).collect();
    table.extend(twice);
    random.shuffle(&mut table);
    let mut place = vec![0i64; profile.string_table.len()];
    for (at, &old) in (1..).zip(&table) {
        place[old] = at;
    }
    let old = std::mem::take(&mut profile.string_table);
    profile.string_table.push(Vec::new());
    profile.string_table.extend(table.iter().map(|&index| old[index].clone()));
    let of = |index: &mut i64| *index = place[*index as usize];
    let of_type = |value: &mut ValueType| {
        of(&mut value.kind);
        of(&mut value.unit);
    };
    profile.sample_type.iter_mut().chain(&mut profile.period_type).for_each(of_type);
    for function in &mut profile.function {
        [&mut function.name, &mut function.system_name, &mut function.filename].into_iter().for_each(of);
    }
    for mapping in &mut profile.mapping {
        [&mut mapping.filename, &mut mapping.build_id].into_iter().for_each(of);
    }
    for label in profile.sample.iter_mut().flat_map(|sample| &mut sample.label) {
        [&mut label.key, &mut label.text, &mut label.unit].into_iter().for_each(of);
    }
    profile.comment.iter_mut().for_each(of);
    let header = [&mut profile.drop_frames, &mut profile.keep_frames, &mut profile.default_sample_type];
    header.into_iter().for_each(of);
    of(&mut profile.doc_url);
}
