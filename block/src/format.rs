//! Format of a block's files: metadata, tables, checksums. Readers and writers share it.
//!
//! * `meta`: `meta.json`, file names, versions. `columns`: schemas and typed vectors of the Parquet files.
//! * `folder`: folders of files, and the checksums of their pages. `pages`: location of rows in a file.
//! * `index`: index from functions to services. `sample_rows`: sample rows and their optional columns.
//! * `row_order`: order of the rows by series, or by hour first.
//! * `duplicates`: detection of profile ids that occur more than once in one tenant's rows.
//! * `parquet_reads`: errors of steps of Parquet's readers.
//! * `error`: errors of reading and writing. Every message names the file.

pub(crate) mod columns;
pub(crate) mod duplicates;
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod index;
pub(crate) mod meta;
pub(crate) mod pages;
pub(crate) mod parquet_reads;
pub(crate) mod row_order;
pub(crate) mod sample_rows;
