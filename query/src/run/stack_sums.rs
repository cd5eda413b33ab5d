//! Sums by stack of one source, as a tree or with all details.

use athanor_chassis::compute::yield_slice;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::{ProfileSource, SourceError};

use super::matched_profiles::MatchedProfiles;
use super::sum_bound::sums_fit;
use crate::request::profile_query::{ProfileQueryError, ProfileSelection};
use crate::request::stack_filter::{GoPgoOptions, StackFilter};
use crate::result::partial::MergedProfile;
use crate::result::sum_check::STACK_VALUES;

const STACK_MISMATCH_ERROR: ProfileQueryError =
    ProfileQueryError::Damaged("totals and names have different stacks");

/// Returns sums by stack of the selected rows. Stacks that the filter leaves out may be included. `sum` adds up the
/// profiles if no sum passes 63 bits. Otherwise the rows are added up one by one.
fn stack_totals(
    places: &[u32],
    selection: &ProfileSelection,
    frames: &StackFilter,
    source: &dyn ProfileSource,
    sum: impl FnOnce() -> Result<Vec<i64>, SourceError>,
) -> Result<Vec<i64>, ProfileQueryError> {
    if sums_fit(places, source)? {
        return Ok(match &selection.requests {
            None => sum(),
            Some(wanted) => source.totals_of_spans(places, wanted),
        }?);
    }
    let passing = find_passing_stacks(source, frames)?;
    let is_passing =
        |stack: u32| passing.as_ref().is_none_or(|all| all.get(stack as usize).copied().unwrap_or(true));
    let mut sums: Vec<i128> = Vec::new();
    let mut add = |stack: u32, value: i64| {
        let stack = stack as usize;
        if sums.len() <= stack {
            sums.resize(stack + 1, 0);
        }
        sums[stack] += i128::from(value);
    };
    match &selection.requests {
        None => source.visit_rows(places, &mut |_, stacks, values| {
            let rows = stacks.iter().zip(values).filter(|(stack, _)| is_passing(**stack));
            rows.for_each(|(&stack, &value)| add(stack, value));
        })?,
        Some(wanted) => source.visit_span_rows(places, &mut |_, stacks, values, requests| {
            let rows = stacks.iter().zip(values).zip(requests);
            let rows = rows.filter(|((stack, _), request)| is_passing(**stack) && wanted.contains(**request));
            rows.for_each(|((&stack, &value), _)| add(stack, value));
        })?,
    }
    let totals = sums.into_iter().map(i64::try_from).collect::<Result<_, _>>();
    totals.map_err(|_| ProfileQueryError::SumTooLarge { what: STACK_VALUES })
}

pub(super) fn tree(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    stacks: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<Tree, ProfileQueryError> {
    let passing = find_passing_stacks(source, &without_call_site(stacks))?;
    build_tree(&picked.places, selection, stacks, passing.as_deref(), source)
}

/// Returns the filter without its call site. A call site is a position in the tree and is matched there.
pub(super) fn without_call_site(stacks: &StackFilter) -> StackFilter {
    StackFilter { frames: stacks.frames.clone(), ..StackFilter::default() }
}

/// Builds the tree of some profiles, from the passing stacks.
pub(super) fn build_tree(
    places: &[u32],
    selection: &ProfileSelection,
    stacks: &StackFilter,
    passing: Option<&[bool]>,
    source: &dyn ProfileSource,
) -> Result<Tree, ProfileQueryError> {
    let sum = || source.totals_for_tree(places);
    let mut totals = stack_totals(places, selection, &without_call_site(stacks), source, sum)?;
    if let Some(passing) = passing {
        if passing.len() < totals.len() {
            return Err(STACK_MISMATCH_ERROR);
        }
        let others = totals.iter_mut().zip(passing).filter(|(_, passes)| !**passes);
        others.for_each(|(total, _)| *total = 0);
    }
    yield_slice();
    Ok(source.tree(&totals)?.subtree_below(&stacks.call_site))
}

pub(super) fn profile(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    filter: &StackFilter,
    pgo: Option<GoPgoOptions>,
    source: &dyn ProfileSource,
) -> Result<MergedProfile, ProfileQueryError> {
    let places = &picked.places;
    let totals = stack_totals(places, selection, filter, source, || source.totals(places))?;
    let mut merged = Err(STACK_MISMATCH_ERROR);
    source.visit_names(&mut |dictionary, stacks| {
        if stacks.len() < totals.len() {
            return;
        }
        let passing = (!filter.is_empty()).then(|| filter.find_passing_stacks(dictionary, stacks));
        let profiles = picked.rows().fold(0u64, |sum, row| sum.saturating_add(picked.record_count(row)));
        let mut of_source = MergedProfile { profiles, ..MergedProfile::default() };
        for (place, (&stack, &total)) in stacks.iter().zip(&totals).enumerate() {
            if total == 0 || passing.as_ref().is_some_and(|passing| !passing[place]) {
                continue;
            }
            let added = match pgo {
                None => of_source.add_foreign_stack(dictionary, stack, total),
                Some(pgo) => {
                    let shape = pgo.reshape_stack(dictionary, stack, &mut of_source.dictionary);
                    of_source.add_own_stack(shape, total)
                }
            };
            if let Err(error) = added {
                merged = Err(error);
                return;
            }
        }
        merged = Ok(of_source);
    })?;
    merged
}

/// Returns a flag per stack: true if it passes the filter. None if the filter is empty.
pub(super) fn find_passing_stacks(
    source: &dyn ProfileSource,
    filter: &StackFilter,
) -> Result<Option<Vec<bool>>, SourceError> {
    if filter.is_empty() {
        return Ok(None);
    }
    let mut passing = Vec::new();
    source.visit_names(&mut |dictionary, stacks| passing = filter.find_passing_stacks(dictionary, stacks))?;
    Ok(Some(passing))
}
