//! Parts of the merged tree on the wire.

use athanor_chassis::Status;
use athanor_profile::callers::Sandwich;
use athanor_profile::table::weigh;
use athanor_proto::athanor::v1::{SandwichRequest, SandwichResponse, SubtreeRequest, SubtreeResponse};

use super::super::named;
use super::super::wire::{asked, tree};
use super::{FRAME, MAX_FRAMES};
use crate::check::{self, invalid};
use crate::{Querier, Reader};

impl Querier {
    /// Who called a function, and what it called.
    pub async fn sandwich(
        &self,
        reader: &Reader,
        request: SandwichRequest,
    ) -> Result<SandwichResponse, Status> {
        self.again(reader, "Sandwich", request, |request| self.around(reader, request)).await
    }

    async fn around(&self, reader: &Reader, request: SandwichRequest) -> Result<SandwichResponse, Status> {
        let SandwichRequest { query, function, depth, max_nodes } = request;
        let (asked, function) = (asked(self, query, "query").await?, named(function)?);
        let max_nodes = check::max_nodes(Some(max_nodes), &self.limits(reader))?;
        // The function itself is one more.
        let depth = if depth == 0 { usize::MAX - 1 } else { depth as usize };
        let unit = asked.unit();
        let whole = self.tree(reader, asked.selection, asked.stacks).await?;
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            let frames = Sandwich::frames(&whole, &function, depth);
            if frames > MAX_FRAMES {
                return Err(invalid(format!(
                    "callers of this function are {frames} frames, the limit is {MAX_FRAMES}; ask for a smaller depth or a shorter time"
                )));
            }
            querier.make_room(&held, frames * FRAME)?;
            let Sandwich { mut callers, mut callees } = Sandwich::of(&whole, &function, depth);
            let weights = weigh(&whole).into_iter().find(|(name, _)| *name == function);
            let weights = weights.map(|(_, weights)| weights).unwrap_or_default();
            callers.truncate_with_ties(max_nodes.asked, max_nodes.most);
            callees.truncate_with_ties(max_nodes.asked, max_nodes.most);
            Ok(SandwichResponse {
                own: weights.flat,
                total: weights.cum,
                unit,
                callers: Some(tree(&querier, &held, &callers)?),
                callees: Some(tree(&querier, &held, &callees)?),
                missing: held.lacks(),
            })
        })
        .await?
    }

    /// What lies below a node.
    pub async fn subtree(&self, reader: &Reader, request: SubtreeRequest) -> Result<SubtreeResponse, Status> {
        self.again(reader, "Subtree", request, |request| self.below(reader, request)).await
    }

    async fn below(&self, reader: &Reader, request: SubtreeRequest) -> Result<SubtreeResponse, Status> {
        let SubtreeRequest { query, path, skip, max_nodes, other_millionths } = request;
        let (asked, path) = (asked(self, query, "query").await?, check::call_site(path)?);
        let nodes = check::nodes(Some(max_nodes), other_millionths, &self.limits(reader))?;
        let unit = asked.unit();
        // Sources need not send what lies elsewhere.
        let mut stacks = asked.stacks;
        if stacks.filter.call_site.is_empty() {
            stacks.filter.call_site.clone_from(&path);
        }
        let whole = self.tree(reader, asked.selection, stacks).await?;
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            let Some(node) = whole.find(&path) else {
                return Ok(SubtreeResponse { unit, missing: held.lacks(), ..SubtreeResponse::default() });
            };
            let mut branch = whole.branch(node, skip as usize);
            nodes.cut(&mut branch);
            let node = &whole.nodes()[node as usize];
            Ok(SubtreeResponse {
                own: node.own,
                total: node.total,
                unit,
                callees: u64::from(node.child_count),
                tree: Some(tree(&querier, &held, &branch)?),
                other: branch.other(),
                missing: held.lacks(),
            })
        })
        .await?
    }
}
