//! Primitives below the data model and all formats.
//!
//! * `hash`: 128-bit content hashes, and maps with hashes as keys.
//! * `codec`: numbers and texts, only for data that Athanor itself writes.
//! * `varint`: the encoding of one number, for `codec` and Protobuf.
//! * `hex`: hexadecimal texts of bytes and ids.
//! * `multipart`: forms of `multipart/form-data`, in which SDKs send profiles.
//! * `decimal`: exact decimal numbers.
//! * `numbering`: numbering of a file's table entries in the order of first use.

pub mod codec;
pub(crate) mod decimal;
pub mod hash;
pub mod hex;
pub mod multipart;
pub(crate) mod numbering;
pub mod varint;
