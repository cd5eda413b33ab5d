//! Graph whose columns are in their form on the wire.

use athanor_profile::encoding::codec::{put_signed_varint, put_varint};
use athanor_proto::athanor::v1::{GraphResponse, TextTable};
use prost::Message;
use serde::ser::Error;
use serde::{Serialize, Serializer};

/// Bytes of most entries of a column.
const USUAL_ENTRY_BYTES: usize = 2;

/// `athanor.v1.GraphResponse` with encoded columns. A column of numbers has the same form on the wire as one of bytes, and
/// is encoded several times as fast here as by the generic encoder.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PackedGraph {
    #[prost(bytes = "vec", tag = "1")]
    callees: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    self_: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    self_gap: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    truncated: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    truncated_gap: Vec<u8>,
    #[prost(int64, tag = "7")]
    divisor: i64,
    #[prost(message, optional, tag = "8")]
    names: Option<PackedTexts>,
    #[prost(bytes = "vec", tag = "9")]
    name_file: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    name_binary: Vec<u8>,
    #[prost(bytes = "vec", tag = "11")]
    name_package: Vec<u8>,
    #[prost(bytes = "vec", tag = "12")]
    name_line: Vec<u8>,
    #[prost(message, optional, tag = "13")]
    files: Option<PackedTexts>,
    #[prost(message, optional, tag = "14")]
    binaries: Option<PackedTexts>,
    #[prost(message, optional, tag = "15")]
    packages: Option<PackedTexts>,
    #[prost(int64, tag = "16")]
    total: i64,
    #[prost(string, tag = "17")]
    unit: String,
    #[prost(int64, tag = "18")]
    period: i64,
    #[prost(uint64, tag = "19")]
    profiles: u64,
    #[prost(uint64, tag = "20")]
    full_nodes: u64,
    #[prost(uint64, tag = "21")]
    root_callees: u64,
    #[prost(string, repeated, tag = "22")]
    warnings: Vec<String>,
    #[prost(uint64, tag = "23")]
    averaged_profiles: u64,
    #[prost(string, tag = "24")]
    resolution: String,
}

/// `athanor.v1.TextTable` with encoded columns.
#[derive(Clone, PartialEq, Eq, Message)]
struct PackedTexts {
    #[prost(string, tag = "1")]
    text: String,
    #[prost(bytes = "vec", tag = "2")]
    shared: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    rest: Vec<u8>,
}

impl From<GraphResponse> for PackedGraph {
    fn from(response: GraphResponse) -> Self {
        PackedGraph {
            callees: pack_numbers(&response.callees),
            name: pack_numbers(&response.name),
            self_: pack_signed(&response.self_),
            self_gap: pack_numbers(&response.self_gap),
            truncated: pack_signed(&response.truncated),
            truncated_gap: pack_numbers(&response.truncated_gap),
            divisor: response.divisor,
            names: response.names.map(PackedTexts::from),
            name_file: pack_numbers(&response.name_file),
            name_binary: pack_numbers(&response.name_binary),
            name_package: pack_numbers(&response.name_package),
            name_line: pack_numbers(&response.name_line),
            files: response.files.map(PackedTexts::from),
            binaries: response.binaries.map(PackedTexts::from),
            packages: response.packages.map(PackedTexts::from),
            total: response.total,
            unit: response.unit,
            period: response.period,
            profiles: response.profiles,
            full_nodes: response.full_nodes,
            root_callees: response.root_callees,
            warnings: response.warnings,
            averaged_profiles: response.averaged_profiles,
            resolution: response.resolution,
        }
    }
}

impl From<TextTable> for PackedTexts {
    fn from(table: TextTable) -> Self {
        let TextTable { text, shared, rest } = table;
        PackedTexts { text, shared: pack_numbers(&shared), rest: pack_numbers(&rest) }
    }
}

impl Serialize for PackedGraph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let response = GraphResponse::decode(&self.encode_to_vec()[..]).map_err(S::Error::custom)?;
        response.serialize(serializer)
    }
}

fn pack_numbers(values: &[u32]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(values.len() * USUAL_ENTRY_BYTES);
    for &value in values {
        put_varint(&mut packed, u64::from(value));
    }
    packed
}

fn pack_signed(values: &[i64]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(values.len() * USUAL_ENTRY_BYTES);
    for &value in values {
        put_signed_varint(&mut packed, value);
    }
    packed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(prop_oneof![0u32..300, any::<u32>()], 0..9)
    }

    fn signed() -> impl Strategy<Value = Vec<i64>> {
        prop::collection::vec(prop_oneof![-300i64..300, any::<i64>()], 0..9)
    }

    fn texts() -> impl Strategy<Value = Option<TextTable>> {
        let table = ("[a-cä]{0,3}", numbers(), numbers());
        prop::option::of(table.prop_map(|(text, shared, rest)| TextTable { text, shared, rest }))
    }

    proptest! {
        #[test]
        fn packed_graph_has_the_bytes_of_the_response(
            columns in prop::collection::vec(numbers(), 8),
            values in prop::collection::vec(signed(), 2),
            tables in prop::collection::vec(texts(), 4),
            counts in prop::collection::vec(any::<u64>(), 4),
            sums in prop::collection::vec(any::<i64>(), 3),
            words in prop::collection::vec("[a-cä]{0,3}", 2..5),
        ) {
            let mut columns = columns.into_iter();
            let mut column = || columns.next().unwrap();
            let response = GraphResponse {
                callees: column(),
                name: column(),
                self_: values[0].clone(),
                self_gap: column(),
                truncated: values[1].clone(),
                truncated_gap: column(),
                divisor: sums[0],
                names: tables[0].clone(),
                name_file: column(),
                name_binary: column(),
                name_package: column(),
                name_line: column(),
                files: tables[1].clone(),
                binaries: tables[2].clone(),
                packages: tables[3].clone(),
                total: sums[1],
                unit: words[0].clone(),
                period: sums[2],
                profiles: counts[0],
                full_nodes: counts[1],
                root_callees: counts[2],
                warnings: words[2..].to_vec(),
                averaged_profiles: counts[3],
                resolution: words[1].clone(),
            };
            let packed = PackedGraph::from(response.clone());
            prop_assert_eq!(packed.encode_to_vec(), response.encode_to_vec());
            prop_assert_eq!(serde_json::to_string(&packed).unwrap(), serde_json::to_string(&response).unwrap());
        }
    }
}
