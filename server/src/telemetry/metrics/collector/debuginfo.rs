//! Metrics of debug information uploads.

use super::{MetricsPage, MetricsSnapshot, labels, unlabeled};

impl MetricsSnapshot {
    /// Writes the counters of uploads that were begun, finished and rejected.
    pub(super) fn debuginfo(&self, page: &mut MetricsPage) {
        let Some(counts) = &self.debuginfo else { return };
        let stages = [("begun", counts.begun), ("finished", counts.finished), ("invalid", counts.invalid)];
        page.counter(
            "athanor_debuginfo_uploads_total",
            "Uploads of debug information that were begun, finished, or finished with what is no such file",
            stages.map(|(stage, count)| (labels(&[("stage", stage)]), count as f64)),
        );
        let help = "Bytes of debug information that came whole";
        page.counter("athanor_debuginfo_bytes_total", help, unlabeled(counts.bytes as f64));
        let refused = counts.refused.iter();
        page.counter(
            "athanor_debuginfo_refused_total",
            "Calls about debug information that were refused",
            refused.map(|(reason, count)| (labels(&[("reason", *reason)]), *count as f64)),
        );
    }
}
