//! What is understood but not answered yet: refused here, with what to do instead.

use athanor_chassis::{Code, Status};

/// What is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    Estimates,
}

impl Later {
    /// The refusal.
    pub(crate) fn refuse(self) -> Status {
        let what = match self {
            Later::Estimates => "estimates of queries are not answered yet; run the query",
        };
        Status::new(Code::Unimplemented, what)
    }
}
