//! Wire format of query kinds.

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_bytes, put_signed_varint, put_varint};

use super::position::{put_position, read_position};
use super::stack_filter::{put_stacks, put_text_list, read_stacks, read_text_list};
use crate::request::profile_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, ProfileListQuery, ProfileOrder, QueryKind,
    SamplesQuery, TimeGrid, TimeSeriesQuery,
};
use crate::request::stack_filter::GoPgoOptions;

pub(super) fn put_query_kind(out: &mut Vec<u8>, what: &QueryKind) {
    out.push(kind_tag(what));
    match what {
        QueryKind::ProfileTypes | QueryKind::LabelNames | QueryKind::Sizes | QueryKind::Ids => {}
        QueryKind::LabelNameCounts { prefix } => put_bytes(out, prefix.as_bytes()),
        QueryKind::LabelValues(LabelValuesQuery { name, prefix, most }) => {
            put_bytes(out, name.as_bytes());
            put_bytes(out, prefix.as_bytes());
            put_varint(out, *most);
        }
        QueryKind::Series(names) | QueryKind::Counts(names) => put_text_list(out, names),
        QueryKind::Tree(stacks) | QueryKind::OriginTree(stacks) => put_stacks(out, stacks),
        QueryKind::Profile(stacks, pgo) => {
            put_stacks(out, stacks);
            put_flag(out, pgo.is_some());
            if let Some(GoPgoOptions { keep_locations, aggregate_callees }) = pgo {
                put_varint(out, u64::from(*keep_locations));
                put_flag(out, *aggregate_callees);
            }
        }
        QueryKind::Points(TimeSeriesQuery { steps, group_by, stacks, mean, exemplars }) => {
            put_steps(out, steps);
            put_text_list(out, group_by);
            put_stacks(out, stacks);
            put_flag(out, *mean);
            put_flag(out, *exemplars);
        }
        QueryKind::Heat(HeatmapQuery { steps, group_by, spans, exemplars }) => {
            put_steps(out, steps);
            put_text_list(out, group_by);
            put_flag(out, *spans);
            put_flag(out, *exemplars);
        }
        QueryKind::Trees(GroupedTreesQuery { group_by, stacks }) => {
            put_text_list(out, group_by);
            put_stacks(out, stacks);
        }
        QueryKind::Profiles(ProfileListQuery { order, keep, stacks }) => {
            put_flag(out, *order == ProfileOrder::Heaviest);
            put_varint(out, *keep);
            put_stacks(out, stacks);
        }
        QueryKind::Samples(SamplesQuery { stacks, first, max_rows, spans }) => {
            put_stacks(out, stacks);
            put_position(out, *first);
            put_varint(out, *max_rows);
            put_flag(out, *spans);
        }
    }
}

/// Returns the tag of the results of a query kind. Counted names have the form of values.
pub(super) fn result_tag(what: &QueryKind) -> u8 {
    match what {
        QueryKind::LabelNameCounts { .. } => kind_tag(&QueryKind::LabelValues(LabelValuesQuery::default())),
        what => kind_tag(what),
    }
}

/// Returns the tag of a query kind.
pub(super) fn kind_tag(what: &QueryKind) -> u8 {
    match what {
        QueryKind::ProfileTypes => 0,
        QueryKind::LabelNames => 1,
        QueryKind::LabelValues(_) => 2,
        QueryKind::Series(_) => 3,
        QueryKind::Tree(_) => 4,
        QueryKind::Profile(..) => 5,
        QueryKind::Points(_) => 6,
        QueryKind::Heat(_) => 7,
        QueryKind::Sizes => 8,
        QueryKind::LabelNameCounts { .. } => 9,
        QueryKind::Trees(_) => 20,
        QueryKind::Profiles(_) => 21,
        QueryKind::Ids => 22,
        QueryKind::Counts(_) => 23,
        QueryKind::Samples(_) => 24,
        QueryKind::OriginTree(_) => 25,
    }
}

pub(super) fn read_query_kind(reader: &mut CodecReader<'_>) -> Result<QueryKind, CodecError> {
    Ok(match reader.read_slice(1)?[0] {
        0 => QueryKind::ProfileTypes,
        1 => QueryKind::LabelNames,
        2 => QueryKind::LabelValues(LabelValuesQuery {
            name: reader.read_text()?.to_owned(),
            prefix: reader.read_text()?.to_owned(),
            most: reader.read_number()?,
        }),
        3 => QueryKind::Series(read_text_list(reader)?),
        4 => QueryKind::Tree(read_stacks(reader)?),
        5 => QueryKind::Profile(read_stacks(reader)?, go_pgo(reader)?),
        6 => QueryKind::Points(TimeSeriesQuery {
            steps: steps(reader)?,
            group_by: read_text_list(reader)?,
            stacks: read_stacks(reader)?,
            mean: read_flag(reader)?,
            exemplars: read_flag(reader)?,
        }),
        7 => QueryKind::Heat(HeatmapQuery {
            steps: steps(reader)?,
            group_by: read_text_list(reader)?,
            spans: read_flag(reader)?,
            exemplars: read_flag(reader)?,
        }),
        8 => QueryKind::Sizes,
        9 => QueryKind::LabelNameCounts { prefix: reader.read_text()?.to_owned() },
        20 => QueryKind::Trees(GroupedTreesQuery {
            group_by: read_text_list(reader)?,
            stacks: read_stacks(reader)?,
        }),
        21 => QueryKind::Profiles(ProfileListQuery {
            order: if read_flag(reader)? { ProfileOrder::Heaviest } else { ProfileOrder::Newest },
            keep: reader.read_number()?,
            stacks: read_stacks(reader)?,
        }),
        22 => QueryKind::Ids,
        23 => QueryKind::Counts(read_text_list(reader)?),
        24 => QueryKind::Samples(SamplesQuery {
            stacks: read_stacks(reader)?,
            first: read_position(reader)?,
            max_rows: reader.read_number()?,
            spans: read_flag(reader)?,
        }),
        25 => QueryKind::OriginTree(read_stacks(reader)?),
        _ => return Err(reader.error_here("unknown query kind")),
    })
}

fn put_steps(out: &mut Vec<u8>, TimeGrid { start, step, count }: &TimeGrid) {
    put_signed_varint(out, *start);
    put_signed_varint(out, *step);
    put_varint(out, *count);
}

fn steps(reader: &mut CodecReader<'_>) -> Result<TimeGrid, CodecError> {
    Ok(TimeGrid { start: reader.read_signed()?, step: reader.read_signed()?, count: reader.read_number()? })
}

fn go_pgo(reader: &mut CodecReader<'_>) -> Result<Option<GoPgoOptions>, CodecError> {
    if !read_flag(reader)? {
        return Ok(None);
    }
    Ok(Some(GoPgoOptions { keep_locations: reader.read_u32()?, aggregate_callees: read_flag(reader)? }))
}

pub(super) fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

pub(super) fn read_flag(reader: &mut CodecReader<'_>) -> Result<bool, CodecError> {
    match reader.read_slice(1)?[0] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.error_here("invalid flag")),
    }
}
