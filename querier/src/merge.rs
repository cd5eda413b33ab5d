//! Profiles merged into one: flame graphs, trees, call graphs, pprof, differences.

use athanor_chassis::Status;
use athanor_profile::tree::Tree;
use athanor_profile::{Header, ProfileType};
use athanor_query::{Ask, GoPgo, Merged, Partial, Selection, StackFilter, What};

use crate::check;
use crate::{Querier, Reader, mixed_up};

mod tree_bytes;
mod wire;

/// How a file begins to say what it lacks.
pub(crate) const LACKS: &str = "partial: ";

pub(crate) use wire::{BAR, Stacks};

/// Which stacks are asked for, and in which shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct StacksAsked {
    pub(crate) filter: StackFilter,
    pub(crate) pgo: Option<GoPgo>,
    /// Whether graphs show each address that has no symbols.
    pub(crate) addresses: bool,
}

impl Querier {
    /// The whole tree: nothing is cut off.
    pub(crate) async fn tree(
        &self,
        reader: &Reader,
        selection: Selection,
        stacks: StacksAsked,
    ) -> Result<Tree, Status> {
        if stacks.pgo.is_some() || stacks.addresses {
            let addresses = stacks.addresses;
            let merged = self.merged(reader, selection, stacks).await?;
            let tree = move || match addresses {
                true => Tree::with_addresses(&merged.dictionary, &merged.totals),
                false => Tree::from_totals(&merged.dictionary, &merged.totals),
            };
            return self.shape(reader, tree).await;
        }
        let ask = Ask { selection, what: What::Tree(stacks.filter), bounds: check::bounds() };
        match self.ask(reader, ask).await? {
            Partial::Tree(tree) => Ok(tree),
            _ => Err(mixed_up()),
        }
    }

    /// All stacks with all that is known of them.
    pub(crate) async fn merged(
        &self,
        reader: &Reader,
        selection: Selection,
        stacks: StacksAsked,
    ) -> Result<Merged, Status> {
        let what = What::Profile(stacks.filter, stacks.pgo);
        let ask = Ask { selection, what, bounds: check::bounds() };
        match self.ask(reader, ask).await? {
            Partial::Profile(merged) => Ok(*merged),
            _ => Err(mixed_up()),
        }
    }
}

/// What a merged profile says of itself, once all is read. Its period is one by convention, as uploads may differ in theirs;
/// its comments are what it lacks.
pub(crate) fn header(reader: &Reader, profile_type: &ProfileType, end_nanos: i64) -> Header {
    let period = match profile_type.name.as_str() {
        "process_cpu" => 1_000_000_000,
        "memory" => 512 * 1024,
        _ => 1,
    };
    Header {
        types: vec![profile_type.value.clone()],
        period_type: Some(profile_type.period.clone()),
        period,
        time_nanos: end_nanos,
        default_type: profile_type.value.kind.clone(),
        comments: reader.all_missing().into_iter().map(|words| format!("{LACKS}{words}")).collect(),
        ..Header::default()
    }
}
