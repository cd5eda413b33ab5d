//! Writing of one block, by tenant and profile, in bounded memory.
//!
//! * `write`: the block writer. It writes `meta.json` last, so an incomplete block does not exist.
//! * `row_sorter`: sorts one profile's rows by stack and sums equal rows.
//! * `stack_numbering`: numbers the entries of one tenant's part.
//! * `memory_profiles`: writes a block from profiles in memory, in any order.

pub(crate) mod memory_profiles;
pub(crate) mod row_sorter;
pub(crate) mod stack_numbering;
pub(crate) mod write;
