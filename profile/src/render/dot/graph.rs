//! Call graphs: lines of functions, the calls between them, and the choice of displayed nodes.
//!
//! Nodes are chosen, ordered and connected as by `go tool pprof -dot -lines`. A graph of few nodes therefore
//! shows the origins of values and the paths to them.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use crate::analysis::source_lines::{LineNumbering, SourceLine};
use crate::data_model::model::Dictionary;
use crate::encoding::hash::PrehashedMap;

/// Limit on the edges visited in the search for redundant ones. Beyond it, redundant edges remain.
const MAX_FOLLOWED_EDGES: usize = 20_000_000;

/// Totals of the stacks of one dictionary.
#[derive(Clone, Copy)]
pub struct StackTotals<'d> {
    /// Dictionary of the stacks.
    pub dictionary: &'d Dictionary,
    /// Total of each stack, by stack id.
    pub totals: &'d [i64],
    /// Set if each address without symbols is a node of its own. Otherwise its binary is the node.
    pub addresses: bool,
}

impl StackTotals<'_> {
    /// Returns the estimated memory for building the graph, in bytes.
    pub fn graph_memory(&self) -> usize {
        const NODE_BYTES: usize = 160;
        const EDGE_BYTES: usize = 96;
        let Dictionary { symbols, stacks, .. } = self.dictionary;
        // Each line of a location may be a node, called by the next one.
        let lines = symbols.lines_from(0) * (NODE_BYTES + EDGE_BYTES);
        symbols.locations().len() * NODE_BYTES + lines + stacks.nodes().len() * EDGE_BYTES
    }
}

/// Call graph of one side, or of two sides merged.
pub(super) struct CallGraph<'d, const N: usize> {
    pub(super) nodes: Vec<CallNode<'d, N>>,
    /// Edges between the nodes, the heaviest first.
    pub(super) edges: Vec<CallEdge<N>>,
    /// Number of nodes before nodes were omitted.
    pub(super) all_nodes: usize,
}

/// Node of the graph: a line of a function.
#[derive(Clone)]
pub(super) struct CallNode<'d, const N: usize> {
    pub(super) place: SourceLine<'d>,
    /// Flat value on each side.
    pub(super) flat: [i64; N],
    /// Cumulative value on each side. A stack counts once even if the line recurs in it.
    pub(super) cum: [i64; N],
}

/// Call from one node to another. A stack counts once even if the call recurs in it.
#[derive(Clone, Copy)]
pub(super) struct CallEdge<const N: usize> {
    /// Index of the calling node in `nodes`.
    pub(super) caller: usize,
    pub(super) callee: usize,
    pub(super) values: [i64; N],
    /// Set if omitted nodes may lie between both nodes.
    pub(super) is_residual: bool,
}

/// Index of all lines of all sides.
struct GraphLineIndex<'d> {
    places: Vec<SourceLine<'d>>,
    /// Lines by side and location, innermost first.
    of_locations: Vec<Vec<Vec<u32>>>,
}

/// Values of nodes and edges, by line index.
struct GraphWeights<const N: usize> {
    flat: Vec<[i64; N]>,
    cum: Vec<[i64; N]>,
    edges: Vec<CallEdge<N>>,
}

/// Returns the sum of a value's magnitudes on all sides.
pub(super) fn magnitude<const N: usize>(values: &[i64; N]) -> i64 {
    let sum = values.iter().fold(0u64, |sum, value| sum.saturating_add(value.unsigned_abs()));
    i64::try_from(sum).unwrap_or(i64::MAX)
}

impl<'d> GraphLineIndex<'d> {
    fn from_sides(sides: &[StackTotals<'d>]) -> Self {
        let numbered: Vec<LineNumbering<'d>> = sides
            .iter()
            .map(|side| LineNumbering::from_dictionary(side.dictionary, side.addresses, |_| true))
            .collect();
        let all: BTreeSet<&SourceLine<'d>> = numbered.iter().flat_map(|side| &side.places).collect();
        let numbers: HashMap<&SourceLine<'d>, u32> = all.iter().copied().zip(0..).collect();
        let of_side = |side: &LineNumbering<'d>| {
            let of_line = |line: &u32| numbers[&side.places[*line as usize]];
            side.of_locations.iter().map(|lines| lines.iter().map(of_line).collect()).collect()
        };
        let of_locations = numbered.iter().map(of_side).collect();
        GraphLineIndex { places: all.into_iter().cloned().collect(), of_locations }
    }

    /// Computes the values of all nodes, or of the kept ones, and of the calls between them.
    fn weigh<const N: usize>(&self, sides: &[StackTotals<'d>; N], kept: Option<&[bool]>) -> GraphWeights<N> {
        let mut weigher = GraphWeightAccumulator::new(self.places.len(), kept);
        let mut frames = Vec::new();
        for (side, StackTotals { dictionary, totals, .. }) in sides.iter().enumerate() {
            for (stack, &total) in (0u32..).zip(*totals).filter(|(_, total)| **total != 0) {
                frames.clear();
                let mut binary = None;
                for location in dictionary.stacks.locations(stack) {
                    let lines = &self.of_locations[side][location as usize];
                    // Consecutive addresses of one binary are one frame.
                    let unnamed = dictionary.symbols.lines(location).is_empty().then_some(lines[0]);
                    if unnamed.is_none() || unnamed != binary {
                        frames.extend_from_slice(lines);
                    }
                    binary = unnamed;
                }
                weigher.stamp = (side as u64) << 32 | u64::from(stack);
                weigher.add_stack(side, &frames, total);
            }
        }
        weigher.weighed
    }
}

/// Accumulator that adds stacks to nodes and edges.
struct GraphWeightAccumulator<'k, const N: usize> {
    /// Kept nodes; `None` keeps all.
    kept: Option<&'k [bool]>,
    weighed: GraphWeights<N>,
    /// Indexes of edges, by caller and callee.
    edge_places: PrehashedMap<u64, usize>,
    /// Stamp of the current stack.
    stamp: u64,
    /// Stamp of the stack that counted each node last.
    node_stamps: Vec<u64>,
    /// Stamp of the stack that counted each edge last.
    edge_stamps: Vec<u64>,
}

impl<'k, const N: usize> GraphWeightAccumulator<'k, N> {
    fn new(nodes: usize, kept: Option<&'k [bool]>) -> Self {
        let weighed = GraphWeights { flat: vec![[0; N]; nodes], cum: vec![[0; N]; nodes], edges: Vec::new() };
        GraphWeightAccumulator {
            kept,
            weighed,
            edge_places: PrehashedMap::default(),
            stamp: u64::MAX,
            node_stamps: vec![u64::MAX; nodes],
            edge_stamps: Vec::new(),
        }
    }

    /// Adds a stack with its frames, leaf first.
    fn add_stack(&mut self, side: usize, frames: &[u32], total: i64) {
        let mut caller = None;
        let mut is_residual = false;
        for &place in frames.iter().rev() {
            if self.kept.is_some_and(|kept| !kept[place as usize]) {
                is_residual = true;
                continue;
            }
            if std::mem::replace(&mut self.node_stamps[place as usize], self.stamp) != self.stamp {
                add(&mut self.weighed.cum[place as usize][side], total);
            }
            // Recursion through omitted nodes is not an edge.
            if let Some(caller) = caller.filter(|caller| *caller != place || !is_residual) {
                let edge = self.intern_edge(caller, place);
                if std::mem::replace(&mut self.edge_stamps[edge], self.stamp) != self.stamp {
                    add(&mut self.weighed.edges[edge].values[side], total);
                    self.weighed.edges[edge].is_residual |= is_residual;
                }
            }
            caller = Some(place);
            is_residual = false;
        }
        if let Some(leaf) = caller.filter(|_| !is_residual) {
            add(&mut self.weighed.flat[leaf as usize][side], total);
        }
    }

    /// Returns the index of an edge, after adding it if new.
    fn intern_edge(&mut self, caller: u32, callee: u32) -> usize {
        let edges = &mut self.weighed.edges;
        let edge_stamps = &mut self.edge_stamps;
        *self.edge_places.entry(u64::from(caller) << 32 | u64::from(callee)).or_insert_with(|| {
            let caller = caller as usize;
            let callee = callee as usize;
            edges.push(CallEdge { caller, callee, values: [0; N], is_residual: false });
            edge_stamps.push(u64::MAX);
            edges.len() - 1
        })
    }
}

fn add(sum: &mut i64, value: i64) {
    *sum = sum.wrapping_add(value);
}

impl<const N: usize> GraphWeights<N> {
    /// Returns the score of each node. The score is the flat value plus the cumulative value times an
    /// entropy. The entropy grows with the spread of values over callers and callees. Calls of a line to
    /// itself do not count.
    fn scores(&self) -> Vec<i64> {
        let count = self.flat.len();
        let [mut callers, mut callees] = [vec![Vec::new(); count], vec![Vec::new(); count]];
        for edge in self.edges.iter().filter(|edge| edge.caller != edge.callee) {
            callers[edge.callee].push(magnitude(&edge.values));
            callees[edge.caller].push(magnitude(&edge.values));
        }
        let score = |(node, (callers, mut callees)): (usize, (Vec<i64>, Vec<i64>))| {
            let flat = magnitude(&self.flat[node]);
            let of_callers = if callers.is_empty() { 1.0 } else { entropy(callers) };
            let is_leaf = callees.is_empty();
            callees.push(flat);
            let of_callees = if is_leaf { 1.0 } else { entropy(callees) };
            let passed = (of_callers + of_callees) * magnitude(&self.cum[node]) as f64;
            // The cast saturates.
            (passed as i64).saturating_add(flat)
        };
        callers.into_iter().zip(callees).enumerate().map(score).collect()
    }
}

/// Returns the entropy of a value's division in bits. The order of the parts does not matter.
fn entropy(mut parts: Vec<i64>) -> f64 {
    parts.sort_unstable();
    let total: f64 = parts.iter().map(|part| *part as f64).sum();
    let of_part = |part: i64| -(part as f64 / total) * (part as f64 / total).log2();
    parts.into_iter().filter(|part| *part > 0).map(of_part).sum()
}

/// Returns the full name of a node, which decides the order of nodes with equal scores.
pub(super) fn printable_name(place: &SourceLine<'_>) -> String {
    match (place.file, place.line) {
        ("", 0) => place.function.to_string(),
        (file, 0) => format!("{} {file}", place.function),
        (file, line) => format!("{} {file}:{line}", place.function),
    }
}

impl<'d, const N: usize> CallGraph<'d, N> {
    /// Builds the graph of at most `max_nodes` nodes.
    pub(super) fn from_sides(sides: &[StackTotals<'d>; N], max_nodes: usize) -> Self {
        let places = GraphLineIndex::from_sides(sides);
        let whole = places.weigh(sides, None);
        let mut graph = Self::from_weights(&places, whole);
        if graph.nodes.len() > max_nodes {
            let shown: HashSet<&SourceLine<'_>> =
                graph.nodes.iter().take(max_nodes).map(|node| &node.place).collect();
            let kept: Vec<bool> = places.places.iter().map(|place| shown.contains(place)).collect();
            let part = places.weigh(sides, Some(&kept));
            graph = CallGraph { all_nodes: graph.all_nodes, ..Self::from_weights(&places, part) };
        }
        graph.sort_edges();
        graph.remove_redundant_edges();
        graph
    }

    /// Sorts edges by weight, the heaviest first, and equal ones by the names of their nodes.
    fn sort_edges(&mut self) {
        let names: Vec<String> = self.nodes.iter().map(|node| printable_name(&node.place)).collect();
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_unstable_by(|&one, &other| (&names[one], one).cmp(&(&names[other], other)));
        let mut ranks = vec![0; names.len()];
        order.into_iter().enumerate().for_each(|(rank, node)| ranks[node] = rank);
        let key =
            |edge: &CallEdge<N>| (Reverse(magnitude(&edge.values)), ranks[edge.caller], ranks[edge.callee]);
        self.edges.sort_unstable_by_key(key);
    }

    /// Sorts nodes by score and renumbers edges. Nodes without any value are dropped.
    fn from_weights(places: &GraphLineIndex<'d>, weighed: GraphWeights<N>) -> Self {
        let scores = weighed.scores();
        let GraphWeights { flat, cum, edges } = weighed;
        let is_node = |place: &usize| (flat[*place], cum[*place]) != ([0; N], [0; N]);
        let mut order: Vec<usize> = (0..places.places.len()).filter(is_node).collect();
        let name = |place: usize| printable_name(&places.places[place]);
        let by_score = |one: &usize, other: &usize| -> Ordering {
            let by_score = scores[*other].cmp(&scores[*one]);
            by_score.then_with(|| name(*one).cmp(&name(*other))).then(one.cmp(other))
        };
        order.sort_unstable_by(by_score);
        let mut numbers = vec![usize::MAX; places.places.len()];
        order.iter().enumerate().for_each(|(number, &place)| numbers[place] = number);
        let node = |&place: &usize| CallNode {
            place: places.places[place].clone(),
            flat: flat[place],
            cum: cum[place],
        };
        let nodes: Vec<CallNode<'d, N>> = order.iter().map(node).collect();
        let numbered = |edge: CallEdge<N>| CallEdge {
            caller: numbers[edge.caller],
            callee: numbers[edge.callee],
            ..edge
        };
        // Stacks of equal lines may cancel each other. What has no value is neither a node nor an edge.
        let is_shown = |edge: &CallEdge<N>| {
            edge.caller < nodes.len() && edge.callee < nodes.len() && edge.values != [0; N]
        };
        let edges = edges.into_iter().map(numbered).filter(is_shown).collect();
        CallGraph { all_nodes: nodes.len(), nodes, edges }
    }

    /// Removes residual edges if another path leads from the caller to the callee. Starts with the
    /// lowest-scored nodes. The lightest edges to a node are checked first, up to the first that is not
    /// residual.
    fn remove_redundant_edges(&mut self) {
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let between = self.edges.iter().enumerate().filter(|(_, edge)| edge.caller != edge.callee);
        between.for_each(|(at, edge)| callers[edge.callee].push(at));
        let mut removed = vec![false; self.edges.len()];
        let mut followed = 0;
        for callee in (0..self.nodes.len()).rev() {
            for &at in callers[callee].iter().rev() {
                if !self.edges[at].is_residual {
                    break;
                }
                if followed > MAX_FOLLOWED_EDGES {
                    continue;
                }
                removed[at] = self.is_redundant(at, &callers, &removed, &mut followed);
            }
        }
        let mut removed = removed.into_iter();
        self.edges.retain(|_| removed.next() != Some(true));
    }

    /// Returns whether the caller of an edge also reaches its callee by other edges.
    fn is_redundant(
        &self,
        at: usize,
        callers: &[Vec<usize>],
        removed: &[bool],
        followed: &mut usize,
    ) -> bool {
        let CallEdge { caller, callee, .. } = self.edges[at];
        let mut seen = vec![false; self.nodes.len()];
        seen[callee] = true;
        let mut waiting = VecDeque::from([callee]);
        while let Some(node) = waiting.pop_front() {
            for &next in callers[node].iter().filter(|&&next| next != at && !removed[next]) {
                *followed += 1;
                let above = self.edges[next].caller;
                if std::mem::replace(&mut seen[above], true) {
                    continue;
                }
                if above == caller {
                    return true;
                }
                waiting.push_back(above);
            }
        }
        false
    }
}
