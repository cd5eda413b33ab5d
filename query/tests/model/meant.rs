//! What of uploads a question means.

use super::uploads::{Asked, Row};

impl Asked {
    /// Whether a row counts, by what is asked of its stack and its request.
    pub fn counts(&self, row: &Row) -> bool {
        let frames = &row.frames;
        frames.starts_with(&self.call_site)
            && self.included.iter().all(|frame| frames.contains(frame))
            && !self.excluded.is_some_and(|frame| frames.contains(&frame))
            && self.is_of_request(row)
    }

    /// Whether a row counts, by what is asked of its request.
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
