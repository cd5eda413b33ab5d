//! Changes between two queries, on the wire.

use std::borrow::Cow;

use athanor_chassis::Status;
use athanor_profile::analysis::compare::{self, ChangeRanking, ComparisonSide, WeightChange, WeightKind};
use athanor_profile::analysis::source_lines::{self, SourceLine};
use athanor_profile::analysis::top_table::function_weights;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::call_tree::tree::Tree;
use athanor_proto::athanor::v1::{
    ChangeLevel, ChangeOrder, ChangeRow, ChangesRequest, ChangesResponse, ChangesSide,
    Measure as WireMeasure, Verdict, Weights,
};
use athanor_query::{MergedProfile, PartialResult, ProfileList, ProfileListQuery, ProfileQuery, QueryKind};

use super::super::averages::value_divisor;
use super::super::wire::{parse_enum, parse_page, parse_query, resolution_text};
use super::super::{ExploreQuery, PageRange};
use super::value_per_sample;
use crate::QueryContext;
use crate::api::merge::{full_tree, merged_stacks};
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate::{self, invalid_argument};

/// Memory of a row beside its texts.
const CHANGE_ROW_BYTES: usize = 384;

/// Presentation of a list of changes.
#[derive(Clone, Copy)]
struct ChangeListOptions {
    measure: WeightKind,
    rank: ChangeRanking,
    only_more_than_noise: bool,
    page: PageRange,
}

pub(crate) async fn changes(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: ChangesRequest,
) -> Result<ChangesResponse, Status> {
    run_cached(executor, reader, "Changes", request, |request| compute_changes(executor, reader, request))
        .await
}

async fn compute_changes(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: ChangesRequest,
) -> Result<ChangesResponse, Status> {
    let shown = shown(&request)?;
    let level: ChangeLevel = parse_enum("level", request.level)?;
    let left = parse_query(executor, request.left, "left").await?;
    let right = parse_query(executor, request.right, "right").await?;
    let of_left = left.profile_type.clone();
    let of_right = right.profile_type.clone();
    if of_left != of_right {
        return Err(invalid_argument(format!(
            "sides have the types {of_left} and {of_right}; compare the same type"
        )));
    }
    // The test for noise counts single profiles, so all values are those of single profiles too.
    let [left, right] = [left, right].map(ExploreQuery::with_single_profiles);
    let (profiles_of_left, profiles_of_right, left_divisor, right_divisor, left, right) = futures::try_join!(
        count_profiles(executor, reader, left.clone()),
        count_profiles(executor, reader, right.clone()),
        value_divisor(executor, reader, &left),
        value_divisor(executor, reader, &right),
        load_weights(executor, reader, left.clone(), level),
        load_weights(executor, reader, right.clone(), level),
    )?;
    let profiles = [profiles_of_left, profiles_of_right];
    let divisors = [left_divisor, right_divisor];
    let samples = [0, 1].map(|at: usize| value_per_sample(&of_left, &profiles[at]));
    let known = samples.clone().map(Result::ok);
    let job_executor = executor.clone();
    let held = reader.clone();
    let compare = move || {
        let sides = [left.side(known[0], divisors[0]), right.side(known[1], divisors[1])];
        answer(&job_executor, &held, sides, shown)
    };
    let mut answer = executor.render_on_pool(reader, compare).await??;
    let side = |side: &mut Option<ChangesSide>, profiles: &ProfileList, at: usize| {
        let side = side.get_or_insert_default();
        side.profiles = profiles.profiles;
        side.averaged_profiles = divisors[at].averaged_profiles();
        // The cast saturates.
        side.period = samples[at].as_ref().map_or(0, |sample| *sample as i64);
    };
    side(&mut answer.left, &profiles[0], 0);
    side(&mut answer.right, &profiles[1], 1);
    answer.unit = of_left.value.unit;
    answer.untested = samples.into_iter().find_map(Result::err).unwrap_or_default();
    answer.warnings = reader.warnings();
    answer.resolution = resolution_text(reader);
    Ok(answer)
}

/// Returns the number of profiles and the range of their periods.
async fn count_profiles(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: ExploreQuery,
) -> Result<ProfileList, Status> {
    let what =
        QueryKind::Profiles(ProfileListQuery { stacks: query.stacks.filter, ..ProfileListQuery::default() });
    let profile_query =
        ProfileQuery { selection: query.selection, what, bounds: validate::default_result_limits() };
    match run_query(executor, reader, profile_query).await? {
        PartialResult::Profiles(list) => Ok(list),
        _ => Err(unexpected_result_type()),
    }
}

/// Returns the data of one side from which weights by function or line are computed.
async fn load_weights(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: ExploreQuery,
    level: ChangeLevel,
) -> Result<WeightSource, Status> {
    let ExploreQuery { selection, stacks, .. } = query;
    Ok(match level {
        ChangeLevel::Function => {
            WeightSource::Functions(full_tree(executor, reader, selection, stacks).await?)
        }
        ChangeLevel::Line => {
            WeightSource::Lines(merged_stacks(executor, reader, selection, stacks).await?.into())
        }
    })
}

/// Query result with the weights of one side.
enum WeightSource {
    Functions(Tree),
    Lines(Box<MergedProfile>),
}

impl WeightSource {
    /// Returns the side with values divided. Values of a sample are those of one profile then.
    fn side(&self, sample: Option<f64>, divisor: ValueDivisor) -> ComparisonSide<SourceLine<'_>> {
        let mut side = match self {
            WeightSource::Functions(tree) => {
                let of_function = |name| SourceLine { function: Cow::from(name), ..SourceLine::default() };
                let weights =
                    function_weights(tree).into_iter().map(|(name, of)| (of_function(name), of)).collect();
                ComparisonSide { weights, total: tree.total(), sample }
            }
            WeightSource::Lines(merged) => {
                let MergedProfile { dictionary, totals, .. } = &**merged;
                let total = totals.iter().sum();
                ComparisonSide { weights: source_lines::all_lines(dictionary, totals), total, sample }
            }
        };
        side.total = divisor.divide(side.total);
        side.weights.iter_mut().for_each(|(_, weights)| *weights = divisor.divide_weights(*weights));
        side
    }
}

fn shown(request: &ChangesRequest) -> Result<ChangeListOptions, Status> {
    let measure = match parse_enum("measure", request.measure)? {
        WireMeasure::Self_ => WeightKind::Flat,
        WireMeasure::Total => WeightKind::Cum,
    };
    let rank = match parse_enum("order", request.order)? {
        ChangeOrder::Share => ChangeRanking::Share,
        ChangeOrder::Value => ChangeRanking::Value,
        ChangeOrder::SamplingNoise => ChangeRanking::Noise,
    };
    Ok(ChangeListOptions {
        measure,
        rank,
        only_more_than_noise: request.only_more_than_sampling_noise,
        page: parse_page(request.page)?,
    })
}

fn answer(
    executor: &QueryExecutor,
    reader: &QueryContext,
    [left, right]: [ComparisonSide<SourceLine<'_>>; 2],
    shown: ChangeListOptions,
) -> Result<ChangesResponse, Status> {
    let ChangeListOptions { measure, rank, only_more_than_noise, page } = shown;
    let side = |total| Some(ChangesSide { total, ..ChangesSide::default() });
    let of_left = side(left.total);
    let of_right = side(right.total);
    let mut changes = compare::compare(left, right, measure);
    changes.retain(|one| !only_more_than_noise || one.verdict == compare::NoiseVerdict::MoreThanNoise);
    compare::rank_changes(&mut changes, rank, measure);
    let on_page = || page.page_rows(&changes);
    let text =
        |one: &WeightChange<SourceLine<'_>>| CHANGE_ROW_BYTES + one.key.function.len() + one.key.file.len();
    executor.reserve_memory(reader, on_page().map(text).sum())?;
    let rows = on_page().map(row).collect();
    let count = changes.len() as u64;
    Ok(ChangesResponse { left: of_left, right: of_right, count, rows, ..ChangesResponse::default() })
}

fn row(one: &WeightChange<SourceLine<'_>>) -> ChangeRow {
    let [left, right] = one.sides.map(|of| Some(Weights { self_: of.flat, total: of.cum }));
    let verdict = match one.verdict {
        compare::NoiseVerdict::Untested => Verdict::Untested,
        compare::NoiseVerdict::Noise => Verdict::SamplingNoise,
        compare::NoiseVerdict::MoreThanNoise => Verdict::MoreThanSamplingNoise,
    };
    ChangeRow {
        function: one.key.function.to_string(),
        file: one.key.file.to_owned(),
        line: one.key.line,
        left,
        right,
        share_change: one.share_change,
        p_value: one.p,
        verdict: verdict as i32,
    }
}
