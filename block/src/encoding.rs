//! Pages of number columns: their encodings, and readers and writers of whole columns. Samples are written here, and
//! samples, names and roll-ups are read here.
//!
//! A merge spends its time here, and the general readers and writers of Parquet take three times as long. Only the
//! encodings that a block has are supported: `delta` for numbers and stacks, `dictionary` for values. Headers and
//! footers remain Parquet's.
//!
//! * `delta`: DELTA_BINARY_PACKED. `dictionary`: PLAIN, and indexes into a dictionary.
//! * `page_writer`: pages of one column of a row group. `page_reader`: values of such pages.

pub(crate) mod delta;
pub(crate) mod dictionary;
pub(crate) mod page_reader;
pub(crate) mod page_writer;
pub(crate) mod varint;
