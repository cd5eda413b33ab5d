//! Profiles reduced to what they say: rows by names and addresses, whatever the ids.

use std::collections::BTreeMap;

use athanor_profile::Profile;
use athanor_profile::data_model::symbols::NO_ENTRY;

use crate::message;

/// One sample: its frames and its labels as text.
pub type Row = (Vec<String>, Vec<String>);

/// Sums and moments by row, rows left out whose sums are all zero and that say no moment.
pub type Rows = BTreeMap<Row, (Vec<i64>, Vec<i64>)>;

fn add(rows: &mut Rows, row: Row, values: &[i64], of_row: &[i64]) {
    let (sums, moments) = rows.entry(row).or_insert_with(|| (vec![0; values.len()], Vec::new()));
    moments.extend_from_slice(of_row);
    moments.sort_unstable();
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(value);
    }
}

fn without_zeros(mut rows: Rows) -> Rows {
    rows.retain(|_, (values, moments)| !moments.is_empty() || values.iter().any(|&value| value != 0));
    rows
}

/// By our decoder.
pub fn ours(profile: &Profile) -> Rows {
    let symbols = &profile.dictionary.symbols;
    let text = |id: u32| symbols.strings.get(id);
    let frame = |location: u32| {
        let entry = symbols.locations()[location as usize];
        let mapping = (entry.mapping != NO_ENTRY).then(|| {
            let mapping = symbols.mappings()[entry.mapping as usize];
            let (file, build) = (text(mapping.filename), text(mapping.build_id));
            format!("{file:?} {build:?} {} {} {:04b}", mapping.size, mapping.offset, mapping.flags)
        });
        let lines = symbols.lines(location).iter().map(|line| {
            let function = symbols.functions()[line.function as usize];
            let (name, system) = (text(function.name), text(function.system_name));
            let file = text(function.filename);
            format!("{name:?} {system:?} {file:?} {} {} {}", function.start_line, line.line, line.column)
        });
        format!("{mapping:?} {} {} {:?}", entry.address, entry.folded, lines.collect::<Vec<_>>())
    };
    let mut rows = Rows::new();
    for (row, (stack, labels, values)) in profile.samples.rows(profile.header.types.len()).enumerate() {
        let labels = profile.dictionary.label_sets.get(labels).iter().map(|label| {
            let (key, value, unit) = (text(label.key), text(label.text), text(label.unit));
            format!("{key:?} {value:?} {} {unit:?}", label.number)
        });
        let mut labels: Vec<String> = labels.collect();
        labels.sort();
        let frames = profile.dictionary.stacks.locations(stack).map(frame).collect();
        add(&mut rows, (frames, labels), values, profile.samples.moments.row_timestamps(row));
    }
    without_zeros(rows)
}

/// By prost.
pub fn theirs(profile: &message::Profile) -> Rows {
    let text = |index: i64| {
        std::str::from_utf8(&profile.string_table[index as usize]).expect("checked by the caller")
    };
    let mappings: BTreeMap<u64, &message::Mapping> =
        profile.mapping.iter().map(|mapping| (mapping.id, mapping)).collect();
    let functions: BTreeMap<u64, &message::Function> =
        profile.function.iter().map(|function| (function.id, function)).collect();
    let locations: BTreeMap<u64, String> = profile
        .location
        .iter()
        .map(|entry| {
            let mapping = mappings.get(&entry.mapping_id);
            let address = entry.address.wrapping_sub(mapping.map_or(0, |mapping| mapping.start));
            let mapping = mapping.map(|mapping| {
                let (file, build) = (text(mapping.filename), text(mapping.build_id));
                let flags = [
                    mapping.has_functions,
                    mapping.has_filenames,
                    mapping.has_line_numbers,
                    mapping.has_inline_frames,
                ];
                let flags = (0..).zip(flags).fold(0u8, |bits, (at, flag)| bits | u8::from(flag) << at);
                let size = mapping.limit.wrapping_sub(mapping.start);
                format!("{file:?} {build:?} {size} {} {flags:04b}", mapping.offset)
            });
            let lines = entry.line.iter().filter_map(|line| {
                let function = functions.get(&line.function_id)?;
                let (name, system) = (text(function.name), text(function.system_name));
                let file = text(function.filename);
                let (start, number) = (function.start_line, line.line);
                Some(format!("{name:?} {system:?} {file:?} {start} {number} {}", line.column))
            });
            let lines: Vec<String> = lines.collect();
            (entry.id, format!("{mapping:?} {address} {} {lines:?}", entry.folded))
        })
        .collect();
    let mut rows = Rows::new();
    for sample in &profile.sample {
        let frames = sample.location_id.iter().map(|id| locations[id].clone()).collect();
        let labels =
            sample.label.iter().filter(|label| label.text != 0 || label.number != 0 || label.unit != 0);
        let mut labels: Vec<String> = labels
            .map(|label| {
                let number = if label.text == 0 { label.number } else { 0 };
                format!("{:?} {:?} {number} {:?}", text(label.key), text(label.text), text(label.unit))
            })
            .collect();
        labels.sort();
        add(&mut rows, (frames, labels), &sample.value, &sample.moment);
    }
    without_zeros(rows)
}
