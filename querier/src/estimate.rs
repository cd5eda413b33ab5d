//! What a query would read, told before it is asked.
//!
//! Series and profiles are read for it, which is little; rows and names, which are most of a query, are not. So series,
//! profiles and samples are counted, and bytes are those of the pages that the query would fetch if nothing were kept of
//! the blocks.

use athanor_chassis::Status;
use athanor_query::{Ask, Partial, Selection, Sizes, What};

use crate::check;
use crate::{Querier, Reader, mixed_up};

mod wire;

impl Querier {
    async fn sizes(&self, reader: &Reader, selection: Selection) -> Result<Sizes, Status> {
        let ask = Ask { selection, what: What::Sizes, bounds: check::bounds() };
        match self.ask(reader, ask).await? {
            Partial::Sizes(sizes) => Ok(*sizes),
            _ => Err(mixed_up()),
        }
    }
}
