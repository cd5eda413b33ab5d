//! What is understood but not answered yet: refused here, with what to do instead.

use athanor_chassis::{Code, Status};

/// What is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    Heatmaps,
    Requests,
    Exemplars,
    FrameFilters,
    GoPgo,
    Estimates,
}

impl Later {
    /// The refusal.
    pub(crate) fn refuse(self) -> Status {
        let what = match self {
            Later::Heatmaps => "heatmaps are not answered yet; ask for points over time",
            Later::Requests => {
                "profiles of single spans, traces and uploads are not answered yet; select by labels and time"
            }
            Later::Exemplars => "exemplars are not answered yet; ask for points without them",
            Later::FrameFilters => "filters of frames are not answered yet; select by call site",
            Later::GoPgo => "profiles shaped for the Go compiler are not answered yet; ask for the plain one",
            Later::Estimates => "estimates of queries are not answered yet; run the query",
        };
        Status::new(Code::Unimplemented, what)
    }
}
