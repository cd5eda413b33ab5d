//! Sums by stack of one source, as a tree or with all details.

use athanor_chassis::compute::yield_slice;
use athanor_profile::analysis::origin_table::OriginTable;
use athanor_profile::analysis::transform::StackRewriter;
use athanor_profile::call_tree::tree::{FrameGrouping, Tree};
use athanor_profile::{Dictionary, ProfileSource, SourceError};

use super::matched_profiles::MatchedProfiles;
use super::sum_bound::sums_fit;
use crate::request::profile_query::{ProfileQueryError, ProfileSelection};
use crate::request::stack_filter::{CallSite, GoPgoOptions, StackFilter};
use crate::result::origin_tree::OriginTree;
use crate::result::partial::MergedProfile;
use crate::result::sum_check::{STACK_VALUES, add_checked};

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
    if stacks.transforms.is_empty() {
        return TreeStacks::prepare(stacks, source)?.build_tree(&picked.places, selection, stacks, source);
    }
    let totals = stack_totals(&picked.places, selection, stacks, source, || source.totals(&picked.places))?;
    yield_slice();
    RewrittenStacks::read(stacks, source, |place| totals.get(place).is_some_and(|&total| total != 0))?
        .build_tree(&totals)
}

/// Stacks of a source in the form in which they enter trees.
pub(super) enum TreeStacks {
    /// Original form, with a flag per stack: true if it passes. None if all pass.
    Original(Option<Vec<bool>>),
    /// Form after transforms.
    Rewritten(Box<RewrittenStacks>),
}

impl TreeStacks {
    /// Reads the stacks of a source that pass a filter.
    pub(super) fn prepare(
        filter: &StackFilter,
        source: &dyn ProfileSource,
    ) -> Result<Self, ProfileQueryError> {
        Ok(match filter.transforms.is_empty() {
            true => TreeStacks::Original(find_passing_stacks(source, &without_call_site(filter))?),
            false => TreeStacks::Rewritten(Box::new(RewrittenStacks::read(filter, source, |_| true)?)),
        })
    }

    /// Builds the tree of some profiles, given by their indexes, ascending.
    pub(super) fn build_tree(
        &self,
        places: &[u32],
        selection: &ProfileSelection,
        filter: &StackFilter,
        source: &dyn ProfileSource,
    ) -> Result<Tree, ProfileQueryError> {
        let passing = match self {
            TreeStacks::Original(passing) => passing.as_deref(),
            TreeStacks::Rewritten(rewritten) => {
                let totals = stack_totals(places, selection, filter, source, || source.totals(places))?;
                yield_slice();
                return rewritten.build_tree(&totals);
            }
        };
        let sum = || source.totals_for_tree(places);
        let mut totals = stack_totals(places, selection, &without_call_site(filter), source, sum)?;
        if let Some(passing) = passing {
            drop_others(&mut totals, passing)?;
        }
        yield_slice();
        Ok(source.tree(&totals)?.subtree_below(&filter.call_site))
    }
}

/// Returns the filter without its call site. In a tree of original stacks, a call site is a position and is matched there.
fn without_call_site(stacks: &StackFilter) -> StackFilter {
    StackFilter { call_site: CallSite::default(), ..stacks.clone() }
}

/// Stacks of a source after transforms.
pub(super) struct RewrittenStacks {
    dictionary: Dictionary,
    /// Rewritten form of each stack of the source. None if it does not pass, is dropped or is not needed.
    stacks: Vec<Option<u32>>,
}

impl RewrittenStacks {
    /// Rewrites the stacks of a source that pass a filter and are needed.
    fn read(
        filter: &StackFilter,
        source: &dyn ProfileSource,
        is_needed: impl Fn(usize) -> bool,
    ) -> Result<Self, ProfileQueryError> {
        let mut rewritten = RewrittenStacks { dictionary: Dictionary::default(), stacks: Vec::new() };
        source.visit_names(&mut |dictionary, stacks| {
            let passing = filter.find_selected_stacks(dictionary, stacks);
            let mut rewriter = StackRewriter::new(&filter.transforms, dictionary);
            let into = &mut rewritten.dictionary;
            let all = stacks.iter().zip(passing).enumerate();
            let all = all.map(|(place, (&stack, passes))| match passes && is_needed(place) {
                true => rewriter.rewrite(stack, into),
                false => None,
            });
            rewritten.stacks = all.collect();
        })?;
        Ok(rewritten)
    }

    /// Returns the tree for totals by stack of the source.
    fn build_tree(&self, totals: &[i64]) -> Result<Tree, ProfileQueryError> {
        Ok(Tree::from_totals(&self.dictionary, &self.sum_stacks(totals)?))
    }

    /// Returns totals by rewritten stack for totals by stack of the source.
    fn sum_stacks(&self, totals: &[i64]) -> Result<Vec<i64>, ProfileQueryError> {
        if self.stacks.len() < totals.len() {
            return Err(STACK_MISMATCH_ERROR);
        }
        let mut sums = vec![0i64; self.dictionary.stacks.len()];
        for (stack, &total) in self.stacks.iter().zip(totals) {
            if let Some(stack) = stack {
                add_checked(&mut sums[*stack as usize], total, STACK_VALUES)?;
            }
        }
        Ok(sums)
    }
}

/// Returns the tree of selected stacks, with a call site from the root on, and the origins of its functions.
pub(super) fn origin_tree(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<OriginTree, ProfileQueryError> {
    let places = &picked.places;
    let profiles = picked.rows().fold(0u64, |sum, row| sum.saturating_add(picked.record_count(row)));
    let mut totals = stack_totals(places, selection, filter, source, || source.totals(places))?;
    yield_slice();
    if !filter.transforms.is_empty() {
        let is_needed = |place: usize| totals.get(place).is_some_and(|&total| total != 0);
        let rewritten = RewrittenStacks::read(filter, source, is_needed)?;
        let sums = rewritten.sum_stacks(&totals)?;
        let dictionary = &rewritten.dictionary;
        let origins = OriginTable::from_totals(dictionary, &sums, FrameGrouping::Function);
        return Ok(OriginTree { tree: Tree::from_totals(dictionary, &sums), origins, profiles });
    }
    if let Some(passing) = find_passing_stacks(source, filter)? {
        drop_others(&mut totals, &passing)?;
    }
    let (tree, origins) = source.tree_with_origins(&totals)?;
    Ok(OriginTree { tree, origins, profiles })
}

/// Sets the totals of stacks that do not pass to 0.
fn drop_others(totals: &mut [i64], passing: &[bool]) -> Result<(), ProfileQueryError> {
    if passing.len() < totals.len() {
        return Err(STACK_MISMATCH_ERROR);
    }
    let others = totals.iter_mut().zip(passing).filter(|(_, passes)| !**passes);
    others.for_each(|(total, _)| *total = 0);
    Ok(())
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
        let passing = (!filter.is_empty()).then(|| filter.find_selected_stacks(dictionary, stacks));
        let mut reshaper = StackReshaper::new(filter, pgo, dictionary);
        let profiles = picked.rows().fold(0u64, |sum, row| sum.saturating_add(picked.record_count(row)));
        let mut of_source = MergedProfile { profiles, ..MergedProfile::default() };
        for (place, (&stack, &total)) in stacks.iter().zip(&totals).enumerate() {
            if total == 0 || passing.as_ref().is_some_and(|passing| !passing[place]) {
                continue;
            }
            let Some(stack) = reshaper.reshape(stack, &mut of_source.dictionary) else { continue };
            if let Err(error) = of_source.add_own_stack(stack, total) {
                merged = Err(error);
                return;
            }
        }
        merged = Ok(of_source);
    })?;
    merged
}

/// Form of the stacks of a merged profile.
struct StackReshaper<'a> {
    from: &'a Dictionary,
    rewriter: StackRewriter<'a>,
    pgo: Option<GoPgoOptions>,
    /// Stacks between transforms and the form for Go PGO.
    rewritten: Dictionary,
}

impl<'a> StackReshaper<'a> {
    fn new(filter: &'a StackFilter, pgo: Option<GoPgoOptions>, from: &'a Dictionary) -> Self {
        let rewriter = StackRewriter::new(&filter.transforms, from);
        StackReshaper { from, rewriter, pgo, rewritten: Dictionary::default() }
    }

    /// Interns the form of a stack that passes. Returns None if transforms drop it.
    fn reshape(&mut self, stack: u32, into: &mut Dictionary) -> Option<u32> {
        let Some(pgo) = self.pgo else { return self.rewriter.rewrite(stack, into) };
        if self.rewriter.is_identity() {
            return Some(pgo.reshape_stack(self.from, stack, into));
        }
        let stack = self.rewriter.rewrite(stack, &mut self.rewritten)?;
        Some(pgo.reshape_stack(&self.rewritten, stack, into))
    }
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
