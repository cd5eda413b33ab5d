//! What of uploads a question means.

use super::uploads::{Row, SelectionCase};

impl SelectionCase {
    /// Returns whether the selection has the stack and the request of a row.
    pub fn counts(&self, row: &Row) -> bool {
        let frames = &row.frames;
        frames.starts_with(&self.call_site)
            && self.included.iter().all(|frame| frames.contains(frame))
            && !self.excluded.is_some_and(|frame| frames.contains(&frame))
            && self.is_of_request(row)
    }

    /// Returns whether the selection has the request of a row.
    pub fn is_of_request(&self, row: &Row) -> bool {
        let Some((of_traces, wanted)) = &self.requests else { return true };
        let id = if *of_traces { row.trace } else { row.span };
        id > 0 && wanted.contains(&id)
    }

    /// Whether the part of an upload counts that a label splits off, or that none does.
    pub fn has_profile(&self, place: usize, labelled: bool) -> bool {
        let Some((places, whole)) = &self.profiles else { return true };
        places.contains(&place) && (*whole || !labelled)
    }
}
