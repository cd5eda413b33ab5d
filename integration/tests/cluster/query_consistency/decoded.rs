//! Answers read back as stacks, by readers that know only how each format is written.

use std::collections::BTreeMap;

use athanor_proto::google::v1::Profile;

use crate::query_consistency::profiles::Frame;

/// By names, the root first: what each stack has by itself, on one side or on each of two.
pub type Stacks<const N: usize> = BTreeMap<Vec<String>, [i64; N]>;
/// The same of one side, with lines.
pub type Lines = BTreeMap<Vec<Frame>, i64>;

/// A flame graph as it came.
#[derive(Debug, PartialEq)]
pub struct Graph<const N: usize> {
    pub stacks: Stacks<N>,
    pub totals: [i64; N],
    pub max_self: i64,
}

impl<const N: usize> Graph<N> {
    /// What a graph of these stacks says.
    pub fn of(stacks: Stacks<N>) -> Self {
        let mut totals = [0; N];
        stacks.values().for_each(|of| totals.iter_mut().zip(of).for_each(|(total, of)| *total += of));
        let max_self = stacks.values().flatten().copied().max().unwrap_or_default();
        Graph { stacks, totals, max_self }
    }
}

/// A bar of a flame graph.
struct Bar<const N: usize> {
    path: Vec<String>,
    starts: [i64; N],
    totals: [i64; N],
    /// What its callees are wide.
    callees: [i64; N],
    self_value: [i64; N],
}

/// Reads bars: for each side distance, total and self value, then the name. Each bar lies within the one above it, its width
/// is what it has by itself and what it calls, and callees are in the order of their names.
pub fn graph<const N: usize>(names: &[String], levels: &[Vec<i64>]) -> Graph<N> {
    let mut stacks = Stacks::new();
    let (mut above, mut totals): (Vec<Bar<N>>, [i64; N]) = (Vec::new(), [0; N]);
    for (depth, level) in levels.iter().enumerate() {
        let (mut bars, mut ends) = (Vec::<Bar<N>>::new(), [0; N]);
        assert_eq!(level.len() % (3 * N + 1), 0);
        for numbers in level.chunks(3 * N + 1) {
            let of = |part: usize| std::array::from_fn::<i64, N, _>(|side| numbers[3 * side + part]);
            let (distances, of_bar, self_value) = (of(0), of(1), of(2));
            let starts: [i64; N] = std::array::from_fn(|side| ends[side] + distances[side]);
            ends = std::array::from_fn(|side| starts[side] + of_bar[side]);
            let mut path = Vec::new();
            if depth == 0 {
                assert_eq!((names[0].as_str(), numbers[3 * N]), ("total", 0));
                totals = of_bar;
            } else {
                let lies_below = |bar: &Bar<N>| {
                    (0..N).all(|side| {
                        let (start, end) = (bar.starts[side], bar.starts[side] + bar.totals[side]);
                        of_bar[side] == 0 || (start <= starts[side] && ends[side] <= end)
                    })
                };
                let caller = above.iter_mut().find(|bar| lies_below(bar)).unwrap();
                (0..N).for_each(|side| caller.callees[side] += of_bar[side]);
                path.clone_from(&caller.path);
                path.push(names[numbers[3 * N] as usize].clone());
                let sibling = bars.last().filter(|bar| bar.path[..depth - 1] == path[..depth - 1]);
                // What was cut off has no name of its own.
                let is_in_order = |bar: &Bar<N>| bar.path[depth - 1] == "other" || bar.path < path;
                assert!(sibling.is_none_or(is_in_order), "{path:?}");
            }
            if self_value != [0; N] {
                assert!(stacks.insert(path.clone(), self_value).is_none(), "{path:?} is there twice");
            }
            bars.push(Bar { path, starts, totals: of_bar, callees: [0; N], self_value });
        }
        above.iter().for_each(Bar::check);
        above = bars;
    }
    above.iter().for_each(Bar::check);
    Graph { max_self: stacks.values().flatten().copied().max().unwrap_or_default(), stacks, totals }
}

impl<const N: usize> Bar<N> {
    fn check(&self) {
        let sum: [i64; N] = std::array::from_fn(|side| self.self_value[side] + self.callees[side]);
        assert_eq!(sum, self.totals, "{:?}", self.path);
    }
}

/// Reads the bytes of a tree: each node its name, what it has by itself and how many callees follow, the last one first.
pub fn tree(bytes: &[u8]) -> Stacks<1> {
    let (mut stacks, mut rest) = (Stacks::new(), bytes);
    let mut paths: Vec<Vec<String>> = if bytes.is_empty() { Vec::new() } else { vec![Vec::new()] };
    while let Some(mut path) = paths.pop() {
        let length = varint(&mut rest) as usize;
        let (name, after) = rest.split_at(length);
        rest = after;
        // The root has none.
        if length > 0 {
            path.push(String::from_utf8(name.to_vec()).unwrap());
        }
        let (self_value, callees) = (varint(&mut rest) as i64, varint(&mut rest));
        if self_value != 0 {
            assert!(stacks.insert(path.clone(), [self_value]).is_none(), "{path:?} is there twice");
        }
        paths.extend((0..callees).map(|_| path.clone()));
    }
    assert!(rest.is_empty());
    stacks
}

/// A number of seven bits a byte, the lowest first.
pub fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, after) = rest.split_first().unwrap();
        *rest = after;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            break;
        }
    }
    value
}

/// What each stack of a pprof has of its one type.
pub fn pprof(profile: &Profile) -> Lines {
    let text = |index: i64| profile.string_table[index as usize].as_str();
    let function = |id: u64| profile.function.iter().find(|function| function.id == id).unwrap();
    let location = |id: &u64| profile.location.iter().find(|location| location.id == *id).unwrap();
    let mut stacks = Lines::new();
    for sample in &profile.sample {
        let lines = sample.location_id.iter().flat_map(|id| &location(id).line);
        let mut stack: Vec<Frame> =
            lines.map(|line| (text(function(line.function_id).name).to_owned(), line.line)).collect();
        stack.reverse();
        let [value] = sample.value[..] else { panic!("{:?}", sample.value) };
        *stacks.entry(stack).or_default() += value;
    }
    stacks
}

/// What a pprof says of itself: what is measured, between two samples and how much that is, when, for how long.
pub fn header(profile: &Profile) -> (Vec<[String; 2]>, i64, [i64; 2]) {
    let text = |index: i64| profile.string_table[index as usize].clone();
    let types = profile.sample_type.iter().chain(&profile.period_type);
    let types = types.map(|of| [text(of.r#type), text(of.unit)]).collect();
    (types, profile.period, [profile.time_nanos, profile.duration_nanos])
}

/// By names only.
pub fn by_names(lines: &Lines) -> Stacks<1> {
    let mut stacks = Stacks::new();
    for (stack, value) in lines {
        let names = stack.iter().map(|(name, _)| name.clone()).collect();
        stacks.entry(names).or_insert([0])[0] += value;
    }
    stacks
}

/// A call graph: lines of functions with what they have by themselves and in all, calls with what they weigh and whether
/// something lies between.
#[derive(Debug, Default, PartialEq)]
pub struct Calls<const N: usize> {
    /// By function and line.
    pub functions: BTreeMap<String, ([i64; N], [i64; N])>,
    pub calls: BTreeMap<(String, String), ([i64; N], bool)>,
    /// How many lines there are, where not all are shown.
    pub of: Option<usize>,
}

/// Reads a graph of counts.
pub fn calls<const N: usize>(dot: &str) -> Calls<N> {
    let (mut numbers, mut found) = (BTreeMap::new(), Calls::default());
    for line in dot.lines() {
        let Some((place, rest)) = line.split_once(" [label=\"") else { continue };
        let label = rest.split('"').next().unwrap();
        if place == "graph" {
            let (shown, all) = label.strip_suffix(" nodes").unwrap().split_once(" of ").unwrap();
            found.of = all.parse().ok();
            assert_eq!(shown.parse::<usize>().unwrap(), shown_in(dot));
        } else if let Some((caller, callee)) = place.split_once(" -> ") {
            let name = |number: &str| String::clone(&numbers[number]);
            let call = (sides(label.trim()), line.contains("style=\"dotted\""));
            assert!(found.calls.insert((name(caller), name(callee)), call).is_none());
        } else {
            let mut parts = label.split("\\n");
            let name = parts.by_ref().take(2).collect::<Vec<_>>().join(" ");
            let text = parts.collect::<Vec<_>>().join(" ");
            // Either what it has by itself is said, and then `of` what in all, or both are one.
            let (self_value, all) = text.split_once("of ").unwrap_or((&text, &text));
            found.functions.insert(name.clone(), (sides(self_value.trim()), sides(all.trim())));
            numbers.insert(place.to_owned(), name);
        }
    }
    found
}

fn shown_in(dot: &str) -> usize {
    dot.lines().filter(|line| line.starts_with('N') && !line.contains("->")).count()
}

/// A value, with its share behind it, or one before and one after, where these differ.
fn sides<const N: usize>(text: &str) -> [i64; N] {
    let value = |text: &str| text.split(' ').next().unwrap().parse::<i64>().unwrap();
    let (before, after) = text.split_once(" -> ").unwrap_or((text, text));
    std::array::from_fn(|side| value(if side == 0 { before } else { after }))
}
