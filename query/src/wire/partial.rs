//! Wire format of partial results: a kind, and its contents.

use athanor_profile::analysis::origin_table::OriginTable;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::encoding::codec::{CodecError, CodecReader, ColumnScale, put_varint};
use athanor_profile::store_interface::dictionary_delta::{self, DictionaryMark};

use super::chunks::PARTIAL_MESSAGE_NAME;
use super::query_kind::{kind_tag, result_tag};
use super::{WireError, damaged_error, lists, profile_ids, profile_list, samples, values};
use crate::request::profile_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, ProfileListQuery, ProfileQuery, QueryKind,
    SamplesQuery, TimeSeriesQuery,
};
use crate::request::stack_filter::StackFilter;
use crate::result::origin_tree::OriginTree;
use crate::result::partial::{MergedProfile, PartialResult, PartialWithIds};

/// Kind of a result with profile ids. The ids and then the result follow.
const WITH_IDS_KIND: u8 = 255;

impl PartialResult {
    /// Appends the encoded result.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if let PartialResult::WithIds(with_ids) = self {
            out.push(WITH_IDS_KIND);
            profile_ids::put_ids(out, &with_ids.ids);
            return with_ids.partial.put(out);
        }
        out.push(match self {
            PartialResult::ProfileTypes(_) => kind_tag(&QueryKind::ProfileTypes),
            PartialResult::Texts(_) => kind_tag(&QueryKind::LabelNames),
            PartialResult::Values(_) => kind_tag(&QueryKind::LabelValues(LabelValuesQuery::default())),
            PartialResult::Series(_) => kind_tag(&QueryKind::Series(Vec::new())),
            PartialResult::Tree(_) => kind_tag(&QueryKind::Tree(StackFilter::default())),
            PartialResult::Profile(_) => kind_tag(&QueryKind::Profile(StackFilter::default(), None)),
            PartialResult::OriginTree(_) => kind_tag(&QueryKind::OriginTree(StackFilter::default())),
            PartialResult::Points(_) => kind_tag(&QueryKind::Points(TimeSeriesQuery::default())),
            PartialResult::Sizes(_) => kind_tag(&QueryKind::Sizes),
            PartialResult::Heat(_) => kind_tag(&QueryKind::Heat(HeatmapQuery::default())),
            PartialResult::Trees(_) => kind_tag(&QueryKind::Trees(GroupedTreesQuery::default())),
            PartialResult::Profiles(_) => kind_tag(&QueryKind::Profiles(ProfileListQuery::default())),
            PartialResult::Ids(_) => kind_tag(&QueryKind::Ids),
            PartialResult::Counts(_) => kind_tag(&QueryKind::Counts(Vec::new())),
            PartialResult::Samples(_) => kind_tag(&QueryKind::Samples(SamplesQuery::default())),
            PartialResult::WithIds(_) => WITH_IDS_KIND,
        });
        match self {
            PartialResult::ProfileTypes(types) => lists::put_types(out, types),
            PartialResult::Texts(texts) => lists::put_sorted(out, texts),
            PartialResult::Series(series) => lists::put_series(out, series),
            PartialResult::Tree(tree) => tree.pack(out),
            PartialResult::Profile(merged) => put_merged(out, merged),
            PartialResult::OriginTree(merged) => put_origin_tree(out, merged),
            PartialResult::Values(counts) => values::put_counts(out, counts),
            PartialResult::Points(points) => values::put_points(out, points),
            PartialResult::Sizes(sizes) => values::put_query_cost(out, sizes),
            PartialResult::Heat(heat) => values::put_heatmap(out, heat),
            PartialResult::Trees(trees) => profile_list::put_trees(out, trees),
            PartialResult::Profiles(list) => profile_list::put_profiles(out, list),
            PartialResult::Ids(ids) => profile_ids::put_id_list(out, ids),
            PartialResult::Counts(counts) => values::put_profile_counts(out, counts),
            PartialResult::Samples(list) => samples::put_samples(out, list),
            PartialResult::WithIds(_) => {}
        }
    }

    /// Decodes the result of a query within the declared memory. Sizes that are unknown before decoding are
    /// bounded by the bytes that are read.
    pub(super) fn read(
        reader: &mut CodecReader<'_>,
        query: &ProfileQuery,
        declared_bytes: usize,
    ) -> Result<PartialResult, WireError> {
        let damaged = damaged_error(PARTIAL_MESSAGE_NAME);
        match reader.read_slice(1).map_err(&damaged)?[0] {
            WITH_IDS_KIND => {
                let ids = profile_ids::read_ids(reader, declared_bytes).map_err(&damaged)?;
                let kind = reader.read_slice(1).map_err(&damaged)?[0];
                let partial = PartialResult::read_content(reader, kind, query, declared_bytes - ids.bytes())?;
                Ok(PartialResult::WithIds(Box::new(PartialWithIds { partial, ids })))
            }
            kind => PartialResult::read_content(reader, kind, query, declared_bytes),
        }
    }

    fn read_content(
        reader: &mut CodecReader<'_>,
        kind: u8,
        query: &ProfileQuery,
        declared_bytes: usize,
    ) -> Result<PartialResult, WireError> {
        let damaged = damaged_error(PARTIAL_MESSAGE_NAME);
        if kind != result_tag(&query.what) {
            return Err(damaged(reader.error_here("result of another query kind")));
        }
        let partial = match &query.what {
            QueryKind::ProfileTypes => {
                lists::read_types(reader, declared_bytes).map(PartialResult::ProfileTypes)
            }
            QueryKind::LabelNames => lists::read_sorted(reader, declared_bytes).map(PartialResult::Texts),
            QueryKind::LabelNameCounts { .. } => {
                let all = LabelValuesQuery::default();
                values::read_counts(reader, &all, declared_bytes).map(PartialResult::Values)
            }
            QueryKind::LabelValues(query) => {
                values::read_counts(reader, query, declared_bytes).map(PartialResult::Values)
            }
            QueryKind::Series(_) => lists::read_series(reader, declared_bytes).map(PartialResult::Series),
            QueryKind::Tree(_) => Tree::unpack(reader, declared_bytes).map(PartialResult::Tree),
            QueryKind::Profile(..) => merged(reader).map(|merged| PartialResult::Profile(Box::new(merged))),
            QueryKind::OriginTree(_) => read_origin_tree(reader, declared_bytes)
                .map(|merged| PartialResult::OriginTree(Box::new(merged))),
            QueryKind::Points(_) => values::read_points(reader, declared_bytes).map(PartialResult::Points),
            QueryKind::Sizes => values::read_query_cost(reader, declared_bytes)
                .map(|sizes| PartialResult::Sizes(Box::new(sizes))),
            QueryKind::Heat(_) => values::read_heatmap(reader, declared_bytes).map(PartialResult::Heat),
            QueryKind::Trees(_) => profile_list::read_trees(reader, declared_bytes).map(PartialResult::Trees),
            QueryKind::Profiles(query) => {
                profile_list::read_profiles(reader, query, declared_bytes).map(PartialResult::Profiles)
            }
            QueryKind::Samples(query) => samples::read_samples(reader, query, declared_bytes)
                .map(|list| PartialResult::Samples(Box::new(list))),
            QueryKind::Ids => profile_ids::read_id_list(reader, declared_bytes).map(PartialResult::Ids),
            QueryKind::Counts(_) => {
                values::read_profile_counts(reader, declared_bytes).map(PartialResult::Counts)
            }
        };
        let partial = partial.map_err(&damaged)?;
        if !reader.is_done() {
            return Err(damaged(reader.error_here("data after the end of the result")));
        }
        partial.check_limits(&query.bounds)?;
        partial.check_sums()?;
        Ok(partial)
    }
}

fn put_origin_tree(out: &mut Vec<u8>, merged: &OriginTree) {
    let OriginTree { tree, origins, profiles } = merged;
    put_varint(out, *profiles);
    tree.pack(out);
    origins.pack(out);
}

fn read_origin_tree(reader: &mut CodecReader<'_>, declared_bytes: usize) -> Result<OriginTree, CodecError> {
    let profiles = reader.read_number()?;
    let tree = Tree::unpack(reader, declared_bytes)?;
    let origins = OriginTable::unpack(reader, declared_bytes.saturating_sub(tree.bytes()))?;
    Ok(OriginTree { tree, origins, profiles })
}

fn put_merged(out: &mut Vec<u8>, merged: &MergedProfile) {
    let MergedProfile { dictionary, totals, profiles } = merged;
    put_varint(out, *profiles);
    dictionary_delta::write(dictionary, DictionaryMark::default(), out);
    put_varint(out, totals.len() as u64);
    let scale = ColumnScale::put(out, totals.iter().copied());
    totals.iter().for_each(|&total| scale.put_number(out, total));
}

fn merged(reader: &mut CodecReader<'_>) -> Result<MergedProfile, CodecError> {
    let mut merged = MergedProfile { profiles: reader.read_number()?, ..MergedProfile::default() };
    dictionary_delta::read(&mut merged.dictionary, reader)?;
    let count = reader.read_count()?;
    if count > merged.dictionary.stacks.len() {
        return Err(reader.error_here("totals of unknown stacks"));
    }
    let scale = ColumnScale::read(reader)?;
    merged.totals = (0..count).map(|_| scale.read_number(reader)).collect::<Result<_, _>>()?;
    Ok(merged)
}
