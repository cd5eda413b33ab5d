//! Answers as bytes: a kind, and what such an answer is made of.

use athanor_profile::growth::{self, Mark};
use athanor_profile::packed::{PackedError, Scale, Unpacker, put};
use athanor_profile::tree::Tree;

use super::pieces::WHAT;
use super::what::kind;
use super::{WireError, damaged, listed, lists, told, values};
use crate::ask::{Ask, Heat, Points, Trees, Values, What};
use crate::partial::{Merged, Partial, Told};
use crate::profiles::Profiles;
use crate::stacks::StackFilter;

/// By what answers that tell of profiles are known; what follows is the answer itself.
const TOLD: u8 = 255;

impl Partial {
    /// Appends all of it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if let Partial::Told(told) = self {
            out.push(TOLD);
            told::put_ids(out, &told.ids);
            return told.answer.put(out);
        }
        out.push(match self {
            Partial::ProfileTypes(_) => kind(&What::ProfileTypes),
            Partial::Texts(_) => kind(&What::LabelNames),
            Partial::Values(_) => kind(&What::LabelValues(Values::default())),
            Partial::Series(_) => kind(&What::Series(Vec::new())),
            Partial::Tree(_) => kind(&What::Tree(StackFilter::default())),
            Partial::Profile(_) => kind(&What::Profile(StackFilter::default(), None)),
            Partial::Points(_) => kind(&What::Points(Points::default())),
            Partial::Sizes(_) => kind(&What::Sizes),
            Partial::Heat(_) => kind(&What::Heat(Heat::default())),
            Partial::Trees(_) => kind(&What::Trees(Trees::default())),
            Partial::Profiles(_) => kind(&What::Profiles(Profiles::default())),
            Partial::Ids(_) => kind(&What::Ids),
            Partial::Told(_) => TOLD,
        });
        match self {
            Partial::ProfileTypes(types) => lists::put_types(out, types),
            Partial::Texts(texts) => lists::put_sorted(out, texts),
            Partial::Series(series) => lists::put_series(out, series),
            Partial::Tree(tree) => tree.pack(out),
            Partial::Profile(merged) => put_merged(out, merged),
            Partial::Values(counts) => values::put_counts(out, counts),
            Partial::Points(points) => values::put_points(out, points),
            Partial::Sizes(sizes) => values::put_sizes(out, sizes),
            Partial::Heat(heat) => values::put_heat(out, heat),
            Partial::Trees(trees) => listed::put_trees(out, trees),
            Partial::Profiles(list) => listed::put_profiles(out, list),
            Partial::Ids(ids) => told::put_list(out, ids),
            Partial::Told(_) => {}
        }
    }

    /// Reads an answer to a question that takes no more memory than was said. What cannot be known before it is made
    /// is bounded by the bytes that are read.
    pub(super) fn read(unpacker: &mut Unpacker<'_>, ask: &Ask, claim: usize) -> Result<Partial, WireError> {
        let damaged = damaged(WHAT);
        match unpacker.take(1).map_err(&damaged)?[0] {
            TOLD => {
                let ids = told::ids(unpacker, claim).map_err(&damaged)?;
                let kind = unpacker.take(1).map_err(&damaged)?[0];
                let answer = Partial::read_answer(unpacker, kind, ask, claim - ids.bytes())?;
                Ok(Partial::Told(Box::new(Told { answer, ids })))
            }
            kind => Partial::read_answer(unpacker, kind, ask, claim),
        }
    }

    fn read_answer(
        unpacker: &mut Unpacker<'_>,
        seen: u8,
        ask: &Ask,
        claim: usize,
    ) -> Result<Partial, WireError> {
        let damaged = damaged(WHAT);
        if seen != kind(&ask.what) {
            return Err(damaged(unpacker.wrong("an answer to another question")));
        }
        let partial = match &ask.what {
            What::ProfileTypes => lists::types(unpacker, claim).map(Partial::ProfileTypes),
            What::LabelNames => lists::sorted(unpacker, claim).map(Partial::Texts),
            What::LabelValues(asked) => values::counts(unpacker, asked, claim).map(Partial::Values),
            What::Series(_) => lists::series(unpacker, claim).map(Partial::Series),
            What::Tree(_) => Tree::unpack(unpacker, claim).map(Partial::Tree),
            What::Profile(..) => merged(unpacker).map(|merged| Partial::Profile(Box::new(merged))),
            What::Points(_) => values::points(unpacker, claim).map(Partial::Points),
            What::Sizes => values::sizes(unpacker, claim).map(|sizes| Partial::Sizes(Box::new(sizes))),
            What::Heat(_) => values::heat(unpacker, claim).map(Partial::Heat),
            What::Trees(_) => listed::trees(unpacker, claim).map(Partial::Trees),
            What::Profiles(asked) => listed::profiles(unpacker, asked, claim).map(Partial::Profiles),
            What::Ids => told::list(unpacker, claim).map(Partial::Ids),
        };
        let partial = partial.map_err(&damaged)?;
        if !unpacker.is_done() {
            return Err(damaged(unpacker.wrong("more than an answer")));
        }
        partial.within(&ask.bounds)?;
        Ok(partial)
    }
}

fn put_merged(out: &mut Vec<u8>, merged: &Merged) {
    let Merged { dictionary, totals, profiles } = merged;
    put(out, *profiles);
    growth::write(dictionary, Mark::default(), out);
    put(out, totals.len() as u64);
    let scale = Scale::put(out, totals.iter().copied());
    totals.iter().for_each(|&total| scale.put_number(out, total));
}

fn merged(unpacker: &mut Unpacker<'_>) -> Result<Merged, PackedError> {
    let mut merged = Merged { profiles: unpacker.number()?, ..Merged::default() };
    growth::read(&mut merged.dictionary, unpacker)?;
    let count = unpacker.count()?;
    if count > merged.dictionary.stacks.len() {
        return Err(unpacker.wrong("totals of stacks that are not there"));
    }
    let scale = Scale::read(unpacker)?;
    merged.totals = (0..count).map(|_| scale.number(unpacker)).collect::<Result<_, _>>()?;
    Ok(merged)
}
