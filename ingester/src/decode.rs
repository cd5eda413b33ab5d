//! Decoding of uploads to records of the head's dictionary.
//!
//! - `decode_pool`: bounds concurrent decoding and the memory of decoded uploads.
//! - `decoded_upload`: inflates an upload, checks it, and splits it into records.
//! - `label_split`: splits samples by the labels that make series of them.
//! - `relabel_rules`: label limits and relabeling rules of a tenant.

pub(crate) mod decode_pool;
pub(crate) mod decoded_upload;
pub(crate) mod label_split;
pub(crate) mod relabel_rules;
