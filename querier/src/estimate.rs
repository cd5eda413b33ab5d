//! What a query would read, told before it is asked.
//!
//! Series and profiles are read for it, which is little; rows and names, which are most of a query, are not. So series,
//! profiles and samples are counted, and bytes are those of the pages that the query would fetch if nothing were kept of
//! the blocks.

use athanor_chassis::Status;
use athanor_query::{PartialResult, ProfileQuery, ProfileSelection, QueryCost, QueryKind};

use crate::validate;
use crate::{Querier, QueryContext, unexpected_result_type};

mod wire;

impl Querier {
    async fn estimate_cost(
        &self,
        reader: &QueryContext,
        selection: ProfileSelection,
    ) -> Result<QueryCost, Status> {
        let ask =
            ProfileQuery { selection, what: QueryKind::Sizes, bounds: validate::default_result_limits() };
        match self.run_query(reader, ask).await? {
            PartialResult::Sizes(sizes) => Ok(*sizes),
            _ => Err(unexpected_result_type()),
        }
    }
}
