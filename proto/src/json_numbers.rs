//! 64-bit numbers in JSON, where protobuf writes them as strings.

use itoa::{Buffer, Integer};
use serde::ser::{Serialize, Serializer};

/// Serializes one number as a JSON string.
pub(crate) struct QuotedNumber<T>(pub(crate) T);

/// Serializes a list of numbers as JSON strings.
pub(crate) struct QuotedNumbers<'a, T>(pub(crate) &'a [T]);

impl<T: Integer + Copy> Serialize for QuotedNumber<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Buffer::new().format(self.0))
    }
}

impl<T: Integer + Copy> Serialize for QuotedNumbers<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|&number| QuotedNumber(number)))
    }
}

#[cfg(test)]
mod tests {
    use crate::athanor::v1::TreeNode;
    use crate::google::v1::Sample;
    use crate::querier::v1::{FlameGraph, Level, SelectMergeStacktracesRequest};

    #[test]
    fn numbers_of_64_bits_are_texts() {
        let all = [0, 1, -1, 10, 99, 100, i64::MIN, i64::MAX];
        let graph = FlameGraph {
            names: vec!["total".into(), "\"a\\".into()],
            levels: vec![Level { values: all.to_vec() }, Level::default()],
            total: i64::MIN,
            max_self: 0,
        };
        assert_eq!(
            serde_json::to_string(&graph).unwrap(),
            r#"{"names":["total","\"a\\"],"levels":[{"values":["0","1","-1","10","99","100","-9223372036854775808","9223372036854775807"]},{}],"total":"-9223372036854775808"}"#
        );
        let sample = Sample { location_id: vec![u64::MAX, 7], value: vec![-3], label: Vec::new() };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(text, r#"{"locationId":["18446744073709551615","7"],"value":["-3"]}"#);
        let node = TreeNode { name: 4, parent: 0, self_: -12, total: 30, other: true };
        let text = serde_json::to_string(&node).unwrap();
        assert_eq!(text, r#"{"name":4,"self":"-12","total":"30","other":true}"#);
        let request = SelectMergeStacktracesRequest { start: 5, max_nodes: Some(7), ..Default::default() };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"start":"5","maxNodes":"7"}"#);
    }
}
