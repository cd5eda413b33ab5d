//! Answers as bytes: a kind, and what such an answer is made of.

use athanor_profile::growth::{self, Mark};
use athanor_profile::packed::{PackedError, Scale, Unpacker, put};
use athanor_profile::tree::Tree;

use super::ask::kind;
use super::pieces::WHAT;
use super::{WireError, damaged, listed, lists};
use crate::ask::{Ask, Points, Trees, What};
use crate::partial::{Merged, Partial};
use crate::profiles::Profiles;

impl Partial {
    /// Appends all of it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Partial::ProfileTypes(_) => kind(&What::ProfileTypes),
            Partial::Texts(_) => kind(&What::LabelNames),
            Partial::Series(_) => kind(&What::Series(Vec::new())),
            Partial::Tree(_) => kind(&What::Tree(Vec::new())),
            Partial::Profile(_) => kind(&What::Profile(Vec::new())),
            Partial::Points(_) => kind(&What::Points(Points::default())),
            Partial::Trees(_) => kind(&What::Trees(Trees::default())),
            Partial::Profiles(_) => kind(&What::Profiles(Profiles::default())),
        });
        match self {
            Partial::ProfileTypes(types) => lists::put_types(out, types),
            Partial::Texts(texts) => lists::put_sorted(out, texts),
            Partial::Series(series) => lists::put_series(out, series),
            Partial::Tree(tree) => tree.pack(out),
            Partial::Profile(merged) => put_merged(out, merged),
            Partial::Points(points) => lists::put_points(out, points),
            Partial::Trees(trees) => listed::put_trees(out, trees),
            Partial::Profiles(list) => listed::put_profiles(out, list),
        }
    }

    /// Reads an answer to a question that takes no more memory than was said. What cannot be known before it is made
    /// is bounded by the bytes that are read.
    pub(super) fn read(unpacker: &mut Unpacker<'_>, ask: &Ask, claim: usize) -> Result<Partial, WireError> {
        let damaged = damaged(WHAT);
        let expected = match &ask.what {
            What::LabelValues(_) => kind(&What::LabelNames),
            what => kind(what),
        };
        if unpacker.take(1).map_err(&damaged)?[0] != expected {
            return Err(damaged(unpacker.wrong("an answer to another question")));
        }
        let partial = match &ask.what {
            What::ProfileTypes => lists::types(unpacker, claim).map(Partial::ProfileTypes),
            What::LabelNames | What::LabelValues(_) => lists::sorted(unpacker, claim).map(Partial::Texts),
            What::Series(_) => lists::series(unpacker, claim).map(Partial::Series),
            What::Tree(_) => Tree::unpack(unpacker, claim).map(Partial::Tree),
            What::Profile(_) => merged(unpacker).map(|merged| Partial::Profile(Box::new(merged))),
            What::Points(_) => lists::points(unpacker, claim).map(Partial::Points),
            What::Trees(_) => listed::trees(unpacker, claim).map(Partial::Trees),
            What::Profiles(asked) => listed::profiles(unpacker, asked, claim).map(Partial::Profiles),
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
