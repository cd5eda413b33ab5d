//! Questions as bytes.

use athanor_profile::packed::{PackedError, Unpacker, put, put_bytes, put_signed, put_texts};
use athanor_profile::{ProfileType, ValueType};

use super::{VERSION, WireError, damaged};
use crate::ask::{Ask, Bounds, Points, Selection, Trees, What};
use crate::profiles::{ProfileOrder, Profiles};
use crate::query::TimeRange;
use crate::selector::{Matcher, Selector};
use crate::syntax::{MAX_MATCHERS, Operator, Raw};

/// Most bytes of a packed question.
pub const MAX_ASK: usize = 4 << 20;

const WHAT: &str = "question";

impl Ask {
    /// As bytes, for whoever has the sources.
    pub fn pack(&self) -> Result<Vec<u8>, WireError> {
        let mut out = vec![VERSION];
        let Selection { selector, profile_type, time } = &self.selection;
        put(&mut out, selector.matchers().len() as u64);
        selector.matchers().iter().for_each(|matcher| put_matcher(&mut out, matcher));
        put(&mut out, u64::from(profile_type.is_some()));
        profile_type.iter().for_each(|one| put_type(&mut out, one));
        put_signed(&mut out, time.from);
        put_signed(&mut out, time.to);
        put_what(&mut out, &self.what);
        let Bounds { entries, nodes, stacks, points } = self.bounds;
        [entries, nodes, stacks, points].into_iter().for_each(|bound| put(&mut out, bound as u64));
        fits(out.len())?;
        Ok(out)
    }

    /// Reads what [`pack`](Self::pack) wrote.
    pub fn unpack(bytes: &[u8]) -> Result<Self, WireError> {
        fits(bytes.len())?;
        let damaged = damaged(WHAT);
        let mut unpacker = Unpacker::new(bytes);
        match unpacker.take(1).map_err(&damaged)?[0] {
            VERSION => {}
            seen => return Err(WireError::Version { what: WHAT, seen }),
        }
        let written = matchers(&mut unpacker).map_err(&damaged)?;
        let rest = rest(&mut unpacker).map_err(&damaged)?;
        // Compiled last, as that may take megabytes.
        let selection = Selection { selector: Selector::compile(written)?, ..rest.selection };
        Ok(Ask { selection, ..rest })
    }
}

fn fits(seen: usize) -> Result<(), WireError> {
    if seen <= MAX_ASK { Ok(()) } else { Err(WireError::TooLarge { what: WHAT, seen, limit: MAX_ASK }) }
}

fn put_matcher(out: &mut Vec<u8>, matcher: &Matcher) {
    let (operator, value) = matcher.comparison();
    out.push(match operator {
        Operator::Equal => 0,
        Operator::NotEqual => 1,
        Operator::Match => 2,
        Operator::NotMatch => 3,
    });
    put_bytes(out, matcher.name().as_bytes());
    put_bytes(out, value.as_bytes());
}

fn matchers(unpacker: &mut Unpacker<'_>) -> Result<Vec<Raw>, PackedError> {
    let count = unpacker.count()?;
    if count > MAX_MATCHERS {
        return Err(unpacker.wrong("more matchers than a selector has"));
    }
    let matcher = |at: usize, unpacker: &mut Unpacker<'_>| {
        let operator = match unpacker.take(1)?[0] {
            0 => Operator::Equal,
            1 => Operator::NotEqual,
            2 => Operator::Match,
            3 => Operator::NotMatch,
            _ => return Err(unpacker.wrong("no operator")),
        };
        let name = unpacker.text()?.to_owned();
        Ok(Raw { name, operator, value: unpacker.text()?.to_owned(), at })
    };
    (1..=count).map(|at| matcher(at, unpacker)).collect()
}

/// All but the selector.
fn rest(unpacker: &mut Unpacker<'_>) -> Result<Ask, PackedError> {
    let profile_type = match unpacker.number()? {
        0 => None,
        1 => Some(read_type(unpacker)?),
        _ => return Err(unpacker.wrong("neither a type nor none")),
    };
    let time = TimeRange { from: unpacker.signed()?, to: unpacker.signed()? };
    let what = what(unpacker)?;
    let mut bound = || {
        let wrong = unpacker.wrong("a bound that this machine cannot count to");
        usize::try_from(unpacker.number()?).map_err(|_| wrong)
    };
    let bounds = Bounds { entries: bound()?, nodes: bound()?, stacks: bound()?, points: bound()? };
    if !unpacker.is_done() {
        return Err(unpacker.wrong("more than a question"));
    }
    Ok(Ask { selection: Selection { selector: Selector::default(), profile_type, time }, what, bounds })
}

fn put_type(out: &mut Vec<u8>, of: &ProfileType) {
    let ProfileType { name, value, period } = of;
    let texts = [name, &value.kind, &value.unit, &period.kind, &period.unit];
    texts.into_iter().for_each(|text| put_bytes(out, text.as_bytes()));
}

fn read_type(unpacker: &mut Unpacker<'_>) -> Result<ProfileType, PackedError> {
    Ok(ProfileType {
        name: unpacker.text()?.to_owned(),
        value: ValueType::new(unpacker.text()?, unpacker.text()?),
        period: ValueType::new(unpacker.text()?, unpacker.text()?),
    })
}

fn put_what(out: &mut Vec<u8>, what: &What) {
    out.push(kind(what));
    match what {
        What::ProfileTypes | What::LabelNames => {}
        What::LabelValues(name) => put_bytes(out, name.as_bytes()),
        What::Series(names) => put_list(out, names),
        What::Tree(call_site) | What::Profile(call_site) => put_list(out, call_site),
        What::Points(points) => {
            let Points { start, step, count, group_by, call_site, mean } = points;
            put_signed(out, *start);
            put_signed(out, *step);
            put(out, *count);
            put_list(out, group_by);
            put_list(out, call_site);
            out.push(u8::from(*mean));
        }
        What::Trees(Trees { group_by, call_site }) => {
            put_list(out, group_by);
            put_list(out, call_site);
        }
        What::Profiles(Profiles { order, keep, call_site }) => {
            out.push(match order {
                ProfileOrder::Newest => 0,
                ProfileOrder::Heaviest => 1,
            });
            put(out, *keep);
            put_list(out, call_site);
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
        What::Profile(_) => 5,
        What::Points(_) => 6,
        What::Trees(_) => 20,
        What::Profiles(_) => 21,
    }
}

fn what(unpacker: &mut Unpacker<'_>) -> Result<What, PackedError> {
    Ok(match unpacker.take(1)?[0] {
        0 => What::ProfileTypes,
        1 => What::LabelNames,
        2 => What::LabelValues(unpacker.text()?.to_owned()),
        3 => What::Series(list(unpacker)?),
        4 => What::Tree(list(unpacker)?),
        5 => What::Profile(list(unpacker)?),
        6 => What::Points(points(unpacker)?),
        20 => What::Trees(Trees { group_by: list(unpacker)?, call_site: list(unpacker)? }),
        21 => What::Profiles(profiles(unpacker)?),
        _ => return Err(unpacker.wrong("a question of no known kind")),
    })
}

fn points(unpacker: &mut Unpacker<'_>) -> Result<Points, PackedError> {
    let (start, step) = (unpacker.signed()?, unpacker.signed()?);
    let count = unpacker.number()?;
    let (group_by, call_site) = (list(unpacker)?, list(unpacker)?);
    let mean = match unpacker.take(1)?[0] {
        0 => false,
        1 => true,
        _ => return Err(unpacker.wrong("neither means nor sums")),
    };
    Ok(Points { start, step, count, group_by, call_site, mean })
}

fn profiles(unpacker: &mut Unpacker<'_>) -> Result<Profiles, PackedError> {
    let order = match unpacker.take(1)?[0] {
        0 => ProfileOrder::Newest,
        1 => ProfileOrder::Heaviest,
        _ => return Err(unpacker.wrong("no order of profiles")),
    };
    Ok(Profiles { order, keep: unpacker.number()?, call_site: list(unpacker)? })
}

fn put_list(out: &mut Vec<u8>, list: &[String]) {
    put_texts(out, list.iter().map(String::as_str));
}

fn list(unpacker: &mut Unpacker<'_>) -> Result<Vec<String>, PackedError> {
    unpacker.texts()?.map(|text| text.map(str::to_owned)).collect()
}
