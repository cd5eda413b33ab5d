//! Wire format of partial results: a kind, and its contents.

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::encoding::codec::{CodecError, CodecReader, ColumnScale, put_varint};
use athanor_profile::store_interface::dictionary_delta::{self, DictionaryMark};

use super::chunks::PARTIAL_MESSAGE_NAME;
use super::query_kind::kind_tag;
use super::{WireError, damaged_error, lists, profile_ids, profile_list, values};
use crate::request::profile_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, ProfileListQuery, ProfileQuery, QueryKind,
    TimeSeriesQuery,
};
use crate::request::stack_filter::StackFilter;
use crate::result::partial::{MergedProfile, PartialResult, PartialWithIds};

/// Kind of a result with profile ids. The ids and then the result follow.
const WITH_IDS_KIND: u8 = 255;

impl PartialResult {
    /// Appends the encoded result.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if let PartialResult::Told(told) = self {
            out.push(WITH_IDS_KIND);
            profile_ids::put_ids(out, &told.ids);
            return told.answer.put(out);
        }
        out.push(match self {
            PartialResult::ProfileTypes(_) => kind_tag(&QueryKind::ProfileTypes),
            PartialResult::Texts(_) => kind_tag(&QueryKind::LabelNames),
            PartialResult::Values(_) => kind_tag(&QueryKind::LabelValues(LabelValuesQuery::default())),
            PartialResult::Series(_) => kind_tag(&QueryKind::Series(Vec::new())),
            PartialResult::Tree(_) => kind_tag(&QueryKind::Tree(StackFilter::default())),
            PartialResult::Profile(_) => kind_tag(&QueryKind::Profile(StackFilter::default(), None)),
            PartialResult::Points(_) => kind_tag(&QueryKind::Points(TimeSeriesQuery::default())),
            PartialResult::Sizes(_) => kind_tag(&QueryKind::Sizes),
            PartialResult::Heat(_) => kind_tag(&QueryKind::Heat(HeatmapQuery::default())),
            PartialResult::Trees(_) => kind_tag(&QueryKind::Trees(GroupedTreesQuery::default())),
            PartialResult::Profiles(_) => kind_tag(&QueryKind::Profiles(ProfileListQuery::default())),
            PartialResult::Ids(_) => kind_tag(&QueryKind::Ids),
            PartialResult::Told(_) => WITH_IDS_KIND,
        });
        match self {
            PartialResult::ProfileTypes(types) => lists::put_types(out, types),
            PartialResult::Texts(texts) => lists::put_sorted(out, texts),
            PartialResult::Series(series) => lists::put_series(out, series),
            PartialResult::Tree(tree) => tree.pack(out),
            PartialResult::Profile(merged) => put_merged(out, merged),
            PartialResult::Values(counts) => values::put_counts(out, counts),
            PartialResult::Points(points) => values::put_points(out, points),
            PartialResult::Sizes(sizes) => values::put_query_cost(out, sizes),
            PartialResult::Heat(heat) => values::put_heatmap(out, heat),
            PartialResult::Trees(trees) => profile_list::put_trees(out, trees),
            PartialResult::Profiles(list) => profile_list::put_profiles(out, list),
            PartialResult::Ids(ids) => profile_ids::put_id_list(out, ids),
            PartialResult::Told(_) => {}
        }
    }

    /// Decodes the result of a query within the declared memory. Sizes that are unknown before decoding are
    /// bounded by the bytes that are read.
    pub(super) fn read(
        unpacker: &mut CodecReader<'_>,
        ask: &ProfileQuery,
        claim: usize,
    ) -> Result<PartialResult, WireError> {
        let damaged = damaged_error(PARTIAL_MESSAGE_NAME);
        match unpacker.read_slice(1).map_err(&damaged)?[0] {
            WITH_IDS_KIND => {
                let ids = profile_ids::read_ids(unpacker, claim).map_err(&damaged)?;
                let kind = unpacker.read_slice(1).map_err(&damaged)?[0];
                let answer = PartialResult::read_answer(unpacker, kind, ask, claim - ids.bytes())?;
                Ok(PartialResult::Told(Box::new(PartialWithIds { answer, ids })))
            }
            kind => PartialResult::read_answer(unpacker, kind, ask, claim),
        }
    }

    fn read_answer(
        unpacker: &mut CodecReader<'_>,
        seen: u8,
        ask: &ProfileQuery,
        claim: usize,
    ) -> Result<PartialResult, WireError> {
        let damaged = damaged_error(PARTIAL_MESSAGE_NAME);
        if seen != kind_tag(&ask.what) {
            return Err(damaged(unpacker.error_here("an answer to another question")));
        }
        let partial = match &ask.what {
            QueryKind::ProfileTypes => lists::read_types(unpacker, claim).map(PartialResult::ProfileTypes),
            QueryKind::LabelNames => lists::read_sorted(unpacker, claim).map(PartialResult::Texts),
            QueryKind::LabelValues(asked) => {
                values::read_counts(unpacker, asked, claim).map(PartialResult::Values)
            }
            QueryKind::Series(_) => lists::read_series(unpacker, claim).map(PartialResult::Series),
            QueryKind::Tree(_) => Tree::unpack(unpacker, claim).map(PartialResult::Tree),
            QueryKind::Profile(..) => merged(unpacker).map(|merged| PartialResult::Profile(Box::new(merged))),
            QueryKind::Points(_) => values::read_points(unpacker, claim).map(PartialResult::Points),
            QueryKind::Sizes => {
                values::read_query_cost(unpacker, claim).map(|sizes| PartialResult::Sizes(Box::new(sizes)))
            }
            QueryKind::Heat(_) => values::read_heatmap(unpacker, claim).map(PartialResult::Heat),
            QueryKind::Trees(_) => profile_list::read_trees(unpacker, claim).map(PartialResult::Trees),
            QueryKind::Profiles(asked) => {
                profile_list::read_profiles(unpacker, asked, claim).map(PartialResult::Profiles)
            }
            QueryKind::Ids => profile_ids::read_id_list(unpacker, claim).map(PartialResult::Ids),
        };
        let partial = partial.map_err(&damaged)?;
        if !unpacker.is_done() {
            return Err(damaged(unpacker.error_here("more than an answer")));
        }
        partial.check_limits(&ask.bounds)?;
        Ok(partial)
    }
}

fn put_merged(out: &mut Vec<u8>, merged: &MergedProfile) {
    let MergedProfile { dictionary, totals, profiles } = merged;
    put_varint(out, *profiles);
    dictionary_delta::write(dictionary, DictionaryMark::default(), out);
    put_varint(out, totals.len() as u64);
    let scale = ColumnScale::put(out, totals.iter().copied());
    totals.iter().for_each(|&total| scale.put_number(out, total));
}

fn merged(unpacker: &mut CodecReader<'_>) -> Result<MergedProfile, CodecError> {
    let mut merged = MergedProfile { profiles: unpacker.read_number()?, ..MergedProfile::default() };
    dictionary_delta::read(&mut merged.dictionary, unpacker)?;
    let count = unpacker.read_count()?;
    if count > merged.dictionary.stacks.len() {
        return Err(unpacker.error_here("totals of stacks that are not there"));
    }
    let scale = ColumnScale::read(unpacker)?;
    merged.totals = (0..count).map(|_| scale.read_number(unpacker)).collect::<Result<_, _>>()?;
    Ok(merged)
}
