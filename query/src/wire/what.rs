//! What is computed, as bytes.

use athanor_profile::packed::{PackedError, Unpacker, put, put_bytes, put_signed, put_texts};

use crate::ask::{Heat, Points, Steps, Trees, Values, What};
use crate::frames::{FrameFilter, FrameNames};
use crate::profiles::{ProfileOrder, Profiles};
use crate::stacks::{GoPgo, StackFilter};

pub(super) fn put_what(out: &mut Vec<u8>, what: &What) {
    out.push(kind(what));
    match what {
        What::ProfileTypes | What::LabelNames | What::Sizes | What::Ids => {}
        What::LabelValues(Values { name, prefix, most }) => {
            put_bytes(out, name.as_bytes());
            put_bytes(out, prefix.as_bytes());
            put(out, *most);
        }
        What::Series(names) => put_list(out, names),
        What::Tree(stacks) => put_stacks(out, stacks),
        What::Profile(stacks, pgo) => {
            put_stacks(out, stacks);
            put_flag(out, pgo.is_some());
            if let Some(GoPgo { keep_locations, aggregate_callees }) = pgo {
                put(out, u64::from(*keep_locations));
                put_flag(out, *aggregate_callees);
            }
        }
        What::Points(Points { steps, group_by, stacks, mean, exemplars }) => {
            put_steps(out, steps);
            put_list(out, group_by);
            put_stacks(out, stacks);
            put_flag(out, *mean);
            put_flag(out, *exemplars);
        }
        What::Heat(Heat { steps, group_by, spans, exemplars }) => {
            put_steps(out, steps);
            put_list(out, group_by);
            put_flag(out, *spans);
            put_flag(out, *exemplars);
        }
        What::Trees(Trees { group_by, stacks }) => {
            put_list(out, group_by);
            put_stacks(out, stacks);
        }
        What::Profiles(Profiles { order, keep, stacks }) => {
            put_flag(out, *order == ProfileOrder::Heaviest);
            put(out, *keep);
            put_stacks(out, stacks);
        }
    }
}

/// By what questions and their answers are told apart.
pub(super) fn kind(what: &What) -> u8 {
    match what {
        What::ProfileTypes => 0,
        What::LabelNames => 1,
        What::LabelValues(_) => 2,
        What::Series(_) => 3,
        What::Tree(_) => 4,
        What::Profile(..) => 5,
        What::Points(_) => 6,
        What::Heat(_) => 7,
        What::Sizes => 8,
        What::Trees(_) => 20,
        What::Profiles(_) => 21,
        What::Ids => 22,
    }
}

pub(super) fn what(unpacker: &mut Unpacker<'_>) -> Result<What, PackedError> {
    Ok(match unpacker.take(1)?[0] {
        0 => What::ProfileTypes,
        1 => What::LabelNames,
        2 => What::LabelValues(Values {
            name: unpacker.text()?.to_owned(),
            prefix: unpacker.text()?.to_owned(),
            most: unpacker.number()?,
        }),
        3 => What::Series(list(unpacker)?),
        4 => What::Tree(stacks(unpacker)?),
        5 => What::Profile(stacks(unpacker)?, go_pgo(unpacker)?),
        6 => What::Points(Points {
            steps: steps(unpacker)?,
            group_by: list(unpacker)?,
            stacks: stacks(unpacker)?,
            mean: flag(unpacker)?,
            exemplars: flag(unpacker)?,
        }),
        7 => What::Heat(Heat {
            steps: steps(unpacker)?,
            group_by: list(unpacker)?,
            spans: flag(unpacker)?,
            exemplars: flag(unpacker)?,
        }),
        8 => What::Sizes,
        20 => What::Trees(Trees { group_by: list(unpacker)?, stacks: stacks(unpacker)? }),
        21 => What::Profiles(Profiles {
            order: if flag(unpacker)? { ProfileOrder::Heaviest } else { ProfileOrder::Newest },
            keep: unpacker.number()?,
            stacks: stacks(unpacker)?,
        }),
        22 => What::Ids,
        _ => return Err(unpacker.wrong("a question of no known kind")),
    })
}

fn put_steps(out: &mut Vec<u8>, Steps { start, step, count }: &Steps) {
    put_signed(out, *start);
    put_signed(out, *step);
    put(out, *count);
}

fn steps(unpacker: &mut Unpacker<'_>) -> Result<Steps, PackedError> {
    Ok(Steps { start: unpacker.signed()?, step: unpacker.signed()?, count: unpacker.number()? })
}

fn put_stacks(out: &mut Vec<u8>, StackFilter { call_site, frames }: &StackFilter) {
    put_list(out, call_site);
    for FrameNames { names, regexes } in [frames.included(), frames.excluded()] {
        put_list(out, names);
        put_list(out, regexes);
    }
}

fn stacks(unpacker: &mut Unpacker<'_>) -> Result<StackFilter, PackedError> {
    let call_site = list(unpacker)?;
    let mut names = || Ok(FrameNames { names: list(unpacker)?, regexes: list(unpacker)? });
    let (included, excluded) = (names()?, names()?);
    // Who packed it had compiled it.
    let frames = FrameFilter::new(included, excluded);
    Ok(StackFilter { call_site, frames: frames.map_err(|_| unpacker.wrong("no filter of frames"))? })
}

fn go_pgo(unpacker: &mut Unpacker<'_>) -> Result<Option<GoPgo>, PackedError> {
    if !flag(unpacker)? {
        return Ok(None);
    }
    Ok(Some(GoPgo { keep_locations: unpacker.small()?, aggregate_callees: flag(unpacker)? }))
}

pub(super) fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

pub(super) fn flag(unpacker: &mut Unpacker<'_>) -> Result<bool, PackedError> {
    match unpacker.take(1)?[0] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(unpacker.wrong("neither yes nor no")),
    }
}

fn put_list(out: &mut Vec<u8>, list: &[String]) {
    put_texts(out, list.iter().map(String::as_str));
}

fn list(unpacker: &mut Unpacker<'_>) -> Result<Vec<String>, PackedError> {
    unpacker.texts()?.map(|text| text.map(str::to_owned)).collect()
}
