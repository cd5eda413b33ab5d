//! What changed between two queries, on the wire.

use std::borrow::Cow;

use athanor_chassis::Status;
use athanor_profile::compare::{self, Compared, Measure, Rank, Side};
use athanor_profile::lines::{self, Place};
use athanor_profile::table::weigh;
use athanor_profile::tree::Tree;
use athanor_proto::athanor::v1::{
    ChangeLevel, ChangeOrder, ChangeRow, ChangesRequest, ChangesResponse, ChangesSide,
    Measure as WireMeasure, Verdict, Weights,
};
use athanor_query::{Ask, Merged, Partial, ProfileList, Profiles, What};

use super::super::wire::{asked, rows};
use super::super::{Asked, Rows};
use super::sample;
use crate::check::{self, invalid};
use crate::{Querier, Reader, mixed_up};

/// What a row takes beside its texts.
const ROW: usize = 384;

/// How to show what changed.
#[derive(Clone, Copy)]
struct Shown {
    measure: Measure,
    rank: Rank,
    only_more_than_noise: bool,
    page: Rows,
}

impl Querier {
    /// Functions or lines that differ between two queries, ranked, each with whether that is more than sampling noise.
    pub async fn changes(&self, reader: &Reader, request: ChangesRequest) -> Result<ChangesResponse, Status> {
        self.again(reader, "Changes", request, |request| self.compared(reader, request)).await
    }

    async fn compared(&self, reader: &Reader, request: ChangesRequest) -> Result<ChangesResponse, Status> {
        let shown = shown(&request)?;
        let (left, right) =
            (asked(self, request.left, "left").await?, asked(self, request.right, "right").await?);
        let (of_left, of_right) = (left.profile_type.clone(), right.profile_type.clone());
        if of_left != of_right {
            return Err(invalid(format!("sides measure {of_left} and {of_right}; compare the same type")));
        }
        let level = ChangeLevel::try_from(request.level).unwrap_or_default();
        let (profiles_of_left, profiles_of_right, left, right) = futures::try_join!(
            self.counted(reader, left.clone()),
            self.counted(reader, right.clone()),
            self.weighed(reader, left, level),
            self.weighed(reader, right, level),
        )?;
        let profiles = [profiles_of_left, profiles_of_right];
        let samples = [0, 1].map(|at: usize| sample(&of_left, &profiles[at]));
        let known = samples.clone().map(Result::ok);
        let (querier, held) = (self.clone(), reader.clone());
        let compare = move || answer(&querier, &held, [left.side(known[0]), right.side(known[1])], shown);
        let mut answer = self.shape(reader, compare).await??;
        let side = |side: &mut Option<ChangesSide>, profiles: &ProfileList, at: usize| {
            let side = side.get_or_insert_default();
            side.profiles = profiles.profiles;
            // Casting saturates.
            side.period = samples[at].as_ref().map_or(0, |sample| *sample as i64);
        };
        side(&mut answer.left, &profiles[0], 0);
        side(&mut answer.right, &profiles[1], 1);
        answer.unit = of_left.value.unit;
        answer.untested = samples.into_iter().find_map(Result::err).unwrap_or_default();
        answer.missing = reader.lacks();
        Ok(answer)
    }

    /// How many profiles there are, and of which periods.
    async fn counted(&self, reader: &Reader, asked: Asked) -> Result<ProfileList, Status> {
        let what = What::Profiles(Profiles { stacks: asked.stacks.filter, ..Profiles::default() });
        let ask = Ask { selection: asked.selection, what, bounds: check::bounds() };
        match self.ask(reader, ask).await? {
            Partial::Profiles(list) => Ok(list),
            _ => Err(mixed_up()),
        }
    }

    /// What one side weighs, by function or by line.
    async fn weighed(&self, reader: &Reader, asked: Asked, level: ChangeLevel) -> Result<Weighed, Status> {
        let Asked { selection, stacks, .. } = asked;
        Ok(match level {
            ChangeLevel::Function => Weighed::Functions(self.tree(reader, selection, stacks).await?),
            ChangeLevel::Line => Weighed::Lines(self.merged(reader, selection, stacks).await?.into()),
        })
    }
}

/// An answer that has weights.
enum Weighed {
    Functions(Tree),
    Lines(Box<Merged>),
}

impl Weighed {
    fn side(&self, sample: Option<f64>) -> Side<Place<'_>> {
        match self {
            Weighed::Functions(tree) => {
                let of_function = |name| Place { function: Cow::from(name), ..Place::default() };
                let weights = weigh(tree).into_iter().map(|(name, of)| (of_function(name), of)).collect();
                Side { weights, total: tree.total(), sample }
            }
            Weighed::Lines(merged) => {
                let Merged { dictionary, totals, .. } = &**merged;
                let total = totals.iter().fold(0i64, |sum, total| sum.wrapping_add(*total));
                Side { weights: lines::all(dictionary, totals), total, sample }
            }
        }
    }
}

fn shown(request: &ChangesRequest) -> Result<Shown, Status> {
    let measure = match WireMeasure::try_from(request.measure).unwrap_or_default() {
        WireMeasure::Own => Measure::Flat,
        WireMeasure::Total => Measure::Cum,
    };
    let rank = match ChangeOrder::try_from(request.order).unwrap_or_default() {
        ChangeOrder::Share => Rank::Share,
        ChangeOrder::Value => Rank::Value,
        ChangeOrder::SamplingNoise => Rank::Noise,
    };
    Ok(Shown {
        measure,
        rank,
        only_more_than_noise: request.only_more_than_sampling_noise,
        page: rows(request.page)?,
    })
}

fn answer(
    querier: &Querier,
    reader: &Reader,
    [left, right]: [Side<Place<'_>>; 2],
    shown: Shown,
) -> Result<ChangesResponse, Status> {
    let Shown { measure, rank, only_more_than_noise, page } = shown;
    let side = |total| Some(ChangesSide { total, ..ChangesSide::default() });
    let (of_left, of_right) = (side(left.total), side(right.total));
    let mut changes = compare::compare(left, right, measure);
    changes.retain(|one| !only_more_than_noise || one.verdict == compare::Verdict::MoreThanNoise);
    compare::rank(&mut changes, rank, measure);
    let on_page = || page.of(&changes);
    let text = |one: &Compared<Place<'_>>| ROW + one.key.function.len() + one.key.file.len();
    querier.make_room(reader, on_page().map(text).sum())?;
    let rows = on_page().map(row).collect();
    let count = changes.len() as u64;
    Ok(ChangesResponse { left: of_left, right: of_right, count, rows, ..ChangesResponse::default() })
}

fn row(one: &Compared<Place<'_>>) -> ChangeRow {
    let [left, right] = one.sides.map(|of| Some(Weights { own: of.flat, total: of.cum }));
    let verdict = match one.verdict {
        compare::Verdict::Untested => Verdict::Untested,
        compare::Verdict::Noise => Verdict::SamplingNoise,
        compare::Verdict::MoreThanNoise => Verdict::MoreThanSamplingNoise,
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
