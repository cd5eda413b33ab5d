//! What makes two answers equal: paths and values, not the order of tables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// A flame graph, or two laid over each other.
pub struct Graph<'a> {
    pub names: &'a [String],
    pub levels: &'a [Vec<i64>],
    pub total: i64,
    pub max_self: i64,
    pub ticks: [i64; 2],
}

/// Very deep stacks are recorded as a hash, which says less than their end.
pub fn key(path: &str) -> String {
    if path.chars().count() < 400 {
        path.to_owned()
    } else {
        format!("{} frames", path.matches(';').count() + 1)
    }
}

/// Path → total and self value (of two graphs: both of the left, both of the right).
pub fn flamegraph(graph: &Graph<'_>, width: usize) -> Value {
    let mut nodes = Map::new();
    let mut above: Vec<(i64, i64, String)> = Vec::new();
    for (depth, level) in graph.levels.iter().enumerate() {
        let mut at = 0;
        let mut here = Vec::new();
        for bar in level.chunks(width) {
            let (delta, total, value, name) = match *bar {
                [delta, total, self_value, name] => (delta, total, vec![total, self_value], name),
                [left, left_total, left_self, right, right_total, right_self, name] => (
                    left + right,
                    left_total + right_total,
                    vec![left_total, left_self, right_total, right_self],
                    name,
                ),
                _ => panic!("level {depth} has {} numbers", level.len()),
            };
            at += delta;
            let name = &graph.names[usize::try_from(name).expect("an index")];
            let inside = |bar: &&(i64, i64, String)| bar.0 <= at && at + total <= bar.0 + bar.1;
            let path = match above.iter().find(inside) {
                Some(parent) => format!("{};{name}", parent.2),
                None => {
                    assert_eq!(depth, 0, "a bar without a caller");
                    name.clone()
                }
            };
            let values = match nodes.remove(&key(&path)) {
                Some(Value::Array(before)) => {
                    let pairs = before.iter().filter_map(Value::as_i64).zip(&value);
                    let mut sums: Vec<Value> = pairs.map(|(left, right)| json!(left + right)).collect();
                    sums.push(json!("twice"));
                    sums
                }
                _ => value.into_iter().map(Value::from).collect(),
            };
            nodes.insert(key(&path), Value::Array(values));
            here.push((at, total, path));
            at += total;
        }
        above = here;
    }
    let mut shown = json!({
        "nodes": nodes, "depth": graph.levels.len(), "total": graph.total, "maxSelf": graph.max_self,
    });
    for (name, ticks) in ["leftTicks", "rightTicks"].iter().zip(graph.ticks).filter(|(_, ticks)| *ticks != 0)
    {
        shown[*name] = json!(ticks);
    }
    shown
}

/// The bytes of a tree: path → total and self value.
pub fn tree(mut bytes: &[u8]) -> Value {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }
    let mut nodes: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(mut path) = waiting.pop() {
        let length = varint(&mut bytes) as usize;
        let (name, rest) = bytes.split_at(length);
        bytes = rest;
        if !path.is_empty() || length > 0 {
            path.push(String::from_utf8(name.to_vec()).expect("text"));
        }
        let self_value = varint(&mut bytes) as i64;
        let callees = varint(&mut bytes) as usize;
        nodes.entry(path.join(";")).or_default()[1] += self_value;
        for end in 0..=path.len() {
            nodes.entry(path[..end].join(";")).or_default()[0] += self_value;
        }
        waiting.extend(std::iter::repeat_n(path, callees));
    }
    let nodes: Map<String, Value> = nodes.into_iter().map(|(path, node)| (key(&path), json!(node))).collect();
    json!({"nodes": nodes, "trailing": bytes.len()})
}

/// Which functions there are and which call which.
pub fn dot(text: &str) -> Value {
    let label = |line: &str| {
        let from = line.find("label=\"").map(|at| at + 7)?;
        line[from..].split('"').next().map(str::to_owned)
    };
    let (mut names, mut edges) = (BTreeMap::new(), BTreeSet::new());
    for line in text.lines().filter(|line| line.starts_with('N')) {
        let id = line.split(' ').next().expect("an id").to_owned();
        let label = label(line).expect("a label");
        match line.split_once(" -> ") {
            Some((_, rest)) => {
                edges.insert((id, rest.split(' ').next().expect("an id").to_owned()));
            }
            None => {
                let is_place = |line: &str| {
                    let number = line.rsplit_once(':').map_or("", |(_, number)| number);
                    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
                };
                let name = label.split("\\n").filter(|line| !line.ends_with("%)") && !is_place(line));
                let name: Vec<&str> = name.collect();
                names.insert(id, name.join("."));
            }
        }
    }
    let edges: BTreeSet<String> =
        edges.iter().map(|(from, to)| format!("{} -> {}", names[from], names[to])).collect();
    let nodes: BTreeSet<&String> = names.values().collect();
    json!({"nodes": nodes, "edges": edges})
}

/// Of a graph that was cut, only heavy nodes and sums: which light ones are folded may vary.
pub fn loose(value: &Value) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    let numbers = |value: &Value| -> Vec<i64> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_i64).step_by(2).collect()
    };
    let sum = |value: &Value| numbers(value).iter().sum::<i64>();
    match object.get("nodes") {
        Some(Value::Object(nodes)) => {
            let nodes: BTreeMap<&String, &Value> = nodes
                .iter()
                .filter(|(_, value)| !value.as_array().is_some_and(|all| all.contains(&json!("twice"))))
                .collect();
            let whole = nodes.values().map(|value| sum(value)).max().unwrap_or_default();
            let parent =
                |path: &str| path.rsplit_once(';').map_or(String::new(), |(parent, _)| parent.to_owned());
            let mut below: BTreeMap<String, i64> = BTreeMap::new();
            nodes.iter().for_each(|(path, value)| *below.entry(parent(path)).or_default() += sum(value));
            let is_root = |path: &str| !path.contains(';');
            let even = nodes.iter().all(|(path, value)| {
                is_root(path) || sum(value) >= below.get(*path).copied().unwrap_or_default()
            });
            let is_big = |path: &str, value: &Value| {
                2 * sum(value) >= whole && path.rsplit(';').next() != Some("other")
            };
            let big = nodes.iter().filter(|(path, value)| is_big(path, value));
            let big: Map<String, Value> =
                big.map(|(path, value)| ((*path).clone(), json!(numbers(value)))).collect();
            let mut shown = json!({"big": big, "even": even});
            for name in ["total", "leftTicks", "rightTicks"] {
                if let Some(value) = object.get(name) {
                    shown[name] = value.clone();
                }
            }
            shown
        }
        Some(_) => json!({}),
        None if object.contains_key("samples") && object.contains_key("types") => {
            let mut shown = object.clone();
            let samples = shown.remove("samples").expect("samples");
            let rows = samples.as_object().expect("stacks").values();
            let sum: i64 = rows.map(|row| row[0].as_i64().expect("a value")).sum();
            shown.insert("sum".to_owned(), json!([sum]));
            Value::Object(shown)
        }
        None => Value::Object(object.iter().map(|(name, value)| (name.clone(), loose(value))).collect()),
    }
}

/// Leaves a path such as `answer.timeline.start` out.
pub fn forget(value: &mut Value, path: &str) {
    let pointer = path.trim_start_matches("answer").replace('.', "/");
    let (above, name) = pointer.rsplit_once('/').expect("a path");
    if let Some(Value::Object(object)) = value.pointer_mut(above) {
        object.remove(name);
    }
}

/// What differs; names that begin with `~` do not count.
pub fn differences(wanted: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(wanted, got, "", &mut found);
    found
}

fn collect(wanted: &Value, got: &Value, at: &str, found: &mut Vec<String>) {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(got)) => {
            let named = |name: &&String| !name.starts_with('~');
            for name in wanted.keys().chain(got.keys()).collect::<BTreeSet<_>>().into_iter().filter(named) {
                match (wanted.get(name), got.get(name)) {
                    (Some(wanted), Some(got)) => collect(wanted, got, &format!("{at}[{name}]"), found),
                    (Some(_), None) if name.contains(" frames, ") => {}
                    (None, Some(_)) if name.ends_with(" frames") => {}
                    (Some(wanted), None) => found.push(format!("{at}[{name}] missing, wanted {wanted}")),
                    (None, got) => found.push(format!("{at}[{name}] not wanted: {got:?}")),
                }
            }
        }
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
            for (place, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                collect(wanted, got, &format!("{at}[{place}]"), found);
            }
        }
        (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64() => {}
        _ if wanted == got => {}
        _ => found.push(format!("{at}: wanted {wanted:.80}, got {got:.80}")),
    }
}
