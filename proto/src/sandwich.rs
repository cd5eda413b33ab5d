//! Half of a sandwich view: a list of nodes on the wire, a tree in JSON.
//!
//! Stacks are deeper than messages may nest. The message is therefore flat, and JSON is written without
//! recursion.

use std::fmt::Write;

use pbjson::private::NumberDeserialize;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;

/// `querier.v1.SandwichTree`: nodes in depth-first order, each before its children.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct SandwichTree {
    /// Nodes of the tree; the first is the focused function.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<SandwichNode>,
}

/// `querier.v1.SandwichNode`: one function of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct SandwichNode {
    /// Index of the function's name.
    #[prost(int32, tag = "1")]
    pub name_index: i32,
    /// Value of the function including its descendants.
    #[prost(int64, tag = "2")]
    pub total: i64,
    /// Value of the function itself.
    #[prost(int64, tag = "3")]
    pub self_value: i64,
    /// Set if the node stands for nodes that were truncated.
    #[prost(bool, tag = "4")]
    pub truncated: bool,
    /// Number of its children, which follow it in the list, each with its whole subtree.
    #[prost(uint32, tag = "5")]
    pub child_count: u32,
}

impl SandwichNode {
    /// Writes all fields but the children. Zero fields are omitted and 64-bit numbers are strings, as in all
    /// JSON of protobuf.
    fn write_fields(&self, out: &mut String) {
        let mut separator = "";
        // Writing to a string cannot fail.
        if self.name_index != 0 {
            let _ = write!(out, "\"nameIndex\":{}", self.name_index);
            separator = ",";
        }
        for (name, value) in
            [("total", self.total), ("self", self.self_value)].into_iter().filter(|(_, value)| *value != 0)
        {
            let _ = write!(out, "{separator}\"{name}\":\"{value}\"");
            separator = ",";
        }
        if self.truncated {
            let _ = write!(out, "{separator}\"truncated\":true");
            separator = ",";
        }
        if self.child_count > 0 {
            let _ = write!(out, "{separator}\"children\":[");
        }
    }
}

impl SandwichTree {
    /// Returns the tree as JSON, or `None` if a node lacks children or has no parent.
    fn to_json(&self) -> Option<String> {
        let mut out = String::new();
        // Missing children of each open node.
        let mut open: Vec<u32> = Vec::new();
        for (place, node) in self.nodes.iter().enumerate() {
            if place > 0 {
                *open.last_mut()? -= 1;
            }
            out.push('{');
            node.write_fields(&mut out);
            if node.child_count > 0 {
                open.push(node.child_count);
                continue;
            }
            out.push('}');
            while open.last() == Some(&0) {
                open.pop();
                out.push_str("]}");
            }
            if !open.is_empty() {
                out.push(',');
            }
        }
        if self.nodes.is_empty() {
            out.push_str("{}");
        }
        open.is_empty().then_some(out)
    }
}

impl Serialize for SandwichTree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = self.to_json().ok_or_else(|| ser::Error::custom("nodes of a sandwich are not a tree"))?;
        RawValue::from_string(json).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

/// Node in JSON. `serde_json` limits the nesting depth.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NestedNode {
    name_index: NumberDeserialize<i32>,
    total: NumberDeserialize<i64>,
    #[serde(rename = "self")]
    self_value: NumberDeserialize<i64>,
    truncated: bool,
    children: Vec<NestedNode>,
}

impl Default for NestedNode {
    fn default() -> Self {
        NestedNode {
            name_index: NumberDeserialize(0),
            total: NumberDeserialize(0),
            self_value: NumberDeserialize(0),
            truncated: false,
            children: Vec::new(),
        }
    }
}

impl<'de> Deserialize<'de> for SandwichTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut waiting = vec![NestedNode::deserialize(deserializer)?];
        let mut nodes = Vec::new();
        while let Some(NestedNode { name_index, total, self_value, truncated, children }) = waiting.pop() {
            let child_count = u32::try_from(children.len()).map_err(D::Error::custom)?;
            let name_index = name_index.0;
            let total = total.0;
            let self_value = self_value.0;
            nodes.push(SandwichNode { name_index, total, self_value, truncated, child_count });
            waiting.extend(children.into_iter().rev());
        }
        Ok(SandwichTree { nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name_index: i32, total: i64, self_value: i64, child_count: u32) -> SandwichNode {
        SandwichNode { name_index, total, self_value, truncated: name_index == 9, child_count }
    }

    #[test]
    fn json_of_nodes_is_nested_and_read_back() {
        let nodes =
            vec![node(0, 9, 1, 3), node(1, 4, 4, 0), node(2, 3, 0, 1), node(9, 3, 3, 0), node(3, 1, 1, 0)];
        let tree = SandwichTree { nodes };
        let text = serde_json::to_string(&tree).expect("JSON");
        let children = [
            r#"{"nameIndex":1,"total":"4","self":"4"}"#,
            r#"{"nameIndex":2,"total":"3","children":[{"nameIndex":9,"total":"3","self":"3","truncated":true}]}"#,
            r#"{"nameIndex":3,"total":"1","self":"1"}"#,
        ];
        assert_eq!(text, format!(r#"{{"total":"9","self":"1","children":[{}]}}"#, children.join(",")));
        assert_eq!(serde_json::from_str::<SandwichTree>(&text).expect("a tree"), tree);
    }

    #[test]
    fn deep_tree_takes_no_stack() {
        const DEPTH: u32 = 200_000;
        let nodes = (0..=DEPTH).map(|depth| node(0, 1, 0, u32::from(depth < DEPTH))).collect();
        let text = serde_json::to_string(&SandwichTree { nodes }).expect("JSON");
        assert_eq!(text.matches("children").count(), DEPTH as usize);
    }

    #[test]
    fn nodes_that_are_no_tree_are_refused() {
        let refused = |nodes: Vec<SandwichNode>| serde_json::to_string(&SandwichTree { nodes }).is_err();
        assert!(refused(vec![node(0, 1, 1, 1)]));
        assert!(refused(vec![node(0, 1, 1, 0), node(1, 1, 1, 0)]));
        assert!(!refused(Vec::new()));
    }
}
