//! Sources of tests: one profile in memory, and one that cannot be read.

use std::sync::Arc;

use athanor_profile::store_interface::source::{
    MemorySource, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{Labels, Profile, ProfileRow, ProfileSeries, ProfileSource, SourceError, ValueType};

/// One profile of `main` and a function that it calls.
pub fn source(function: &str, value: i64) -> Arc<dyn ProfileSource> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.intern_named_stack(["main", function].into_iter());
    profile.samples.push(stack, 0, &[value]);
    let mut source = MemorySource::default();
    source.add(&Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]), &profile, 1);
    Arc::new(source)
}

/// A source whose series cannot be read, for this reason.
pub struct FailingSource(pub SourceError);

impl ProfileSource for FailingSource {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Err(self.0.clone())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(Arc::new([]))
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        Ok(Vec::new())
    }
    fn visit_rows(&self, _: &[u32], _: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn visit_span_rows(&self, _: &[u32], _: &mut SourceSpanRowVisitor<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn read_size(&self, _: &[u32], _: bool) -> Result<SourceReadSize, SourceError> {
        Ok(SourceReadSize::default())
    }
    fn visit_names(&self, _: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        Ok(())
    }
}
