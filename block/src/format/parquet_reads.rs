//! Errors of steps of Parquet's readers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use athanor_chassis::tasks::panic_message;

use crate::format::error::BlockError;

/// Runs a step of Parquet's reader and converts a panic into an error. The reader trusts the counts and
/// lengths in pages, so it panics on some damage with valid checksums. A damaged block then fails its query
/// and not the process. The caller drops the half-read state together with the error.
pub(crate) fn catch_parquet_panic<T>(
    file: &str,
    read: impl FnOnce() -> parquet::errors::Result<T>,
) -> Result<T, BlockError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(BlockError::parquet(file)),
        Err(payload) => {
            let why = format!("the Parquet reader panicked: {}", panic_message(&*payload));
            Err(BlockError::corrupt(file, why))
        }
    }
}

/// Error of a column with fewer rows than its row group.
pub(crate) fn truncated_column(file: &str) -> BlockError {
    BlockError::corrupt(file, "column ends before the end of its row group")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::meta::SAMPLES_FILE;

    #[test]
    fn a_panic_of_the_parquet_reader_is_an_error_that_names_the_file() {
        let error = catch_parquet_panic::<()>(SAMPLES_FILE, || panic!("index out of bounds")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "samples.parquet is inconsistent: the Parquet reader panicked: index out of bounds"
        );
    }
}
