//! How long a flame graph of a million nodes takes, from a merged tree to the bytes of the answer: 99 % and 99.5 % of the
//! weight, so many nodes as servers show where nothing is asked for, and what lies behind the heaviest remainder of that one.
//!
//! `cargo bench -p athanor-profile --bench graph`; `-- --stacks 12000` draws the graph of R. The tree is that of R with more
//! stacks, the k-th of which weighs as much as Zipf's law says. The floor copies the nodes that are shown and writes as many
//! numbers. All is one thread's processor time, the best of some rounds in turns.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Duration;

use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::{Tree, TreeNode};
use athanor_profile::encoding::codec::put_varint;
use athanor_profile::generate::ReferenceDataset;
use prost::Message;

const ROUNDS: usize = 9;
/// So many that their tree has a million nodes.
const STACKS: usize = 160_000;
/// Nodes that are shown where nothing is asked for, and at most.
const NODES: usize = 8_192;
const MOST: usize = 1 << 20;

/// As clients read it.
#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    total: i64,
    #[prost(int64, tag = "4")]
    max_self: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Level {
    #[prost(int64, repeated, tag = "1")]
    values: Vec<i64>,
}

/// This thread's processor time.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn whole(stacks: usize) -> Tree {
    let set = ReferenceDataset::with_stacks(ReferenceDataset::PUBLISHED_SEED, stacks);
    let weight = |rank: usize| (1e15 / (rank as f64).powf(0.9)) as i64;
    let totals: Vec<i64> = (1..=stacks).map(weight).collect();
    Tree::from_totals(&set.dictionary(), &totals)
}

/// How long each part took: to choose nodes and cut the others off, to lay out bars, to write them.
#[derive(Clone, Copy)]
struct Took([Duration; 3]);

impl Took {
    fn all(self) -> Duration {
        self.0.iter().sum()
    }
}

/// Makes an answer of what `cut` leaves of a tree, some times.
fn answer(whole: &Tree, cut: impl Fn(Tree) -> Tree) -> (Took, Tree, usize) {
    let mut best: Option<(Took, Tree, usize)> = None;
    for _ in 0..ROUNDS {
        // It is the answer's own.
        let merged = whole.clone();
        let begun = now();
        let tree = cut(merged);
        let chosen = now();
        let Flamegraph { names, levels, total, max_self } = Flamegraph::from_tree(&tree);
        let drawn = now();
        let levels = levels.into_iter().map(|values| Level { values }).collect();
        let bytes = black_box(Wire { names, levels, total, max_self }.encode_to_vec()).len();
        let took = Took([chosen - begun, drawn - chosen, now() - drawn]);
        if best.as_ref().is_none_or(|(best, _, _)| took.all() < best.all()) {
            best = Some((took, tree, bytes));
        }
    }
    best.unwrap()
}

/// Copies nodes and writes four numbers of each.
fn floor(nodes: &[TreeNode]) -> Duration {
    let once = || {
        let begun = now();
        let copied = black_box(nodes).to_vec();
        let mut out = Vec::with_capacity(40 * copied.len());
        for node in &copied {
            for number in [node.self_value, node.total, i64::from(node.name), i64::from(node.parent)] {
                put_varint(&mut out, number as u64);
            }
        }
        black_box(&out);
        now() - begun
    };
    (0..ROUNDS).map(|_| once()).min().unwrap()
}

fn shown(what: &str, of: i64, (took, tree, bytes): (Took, Tree, usize)) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let floor = floor(tree.nodes());
    let named = tree.nodes().iter().skip(1).filter(|node| !node.other).count();
    println!(
        "{what:34} {named:8} nodes, other {:6.3} %, {:5.1} MB: {:6.1} ms (choose {:5.1}, bars {:5.1}, bytes {:5.1}); floor {:5.1} \
         ms, {:4.1} %",
        100.0 * tree.truncated_total() as f64 / of as f64,
        bytes as f64 / 1e6,
        ms(took.all()),
        ms(took.0[0]),
        ms(took.0[1]),
        ms(took.0[2]),
        ms(floor),
        100.0 * floor.as_secs_f64() / took.all().as_secs_f64(),
    );
}

/// The functions from the root to the caller of the heaviest remainder that is not the root's, and how many of its callees
/// are shown.
fn heaviest_remainder(cut: &Tree) -> (Vec<String>, usize) {
    let remainders = cut.nodes().iter().filter(|node| node.other && node.parent != 0);
    let caller = remainders.max_by_key(|node| node.total).unwrap().parent;
    let (mut path, mut at) = (Vec::new(), caller);
    while at != 0 {
        let node = &cut.nodes()[at as usize];
        path.push(cut.name(node).to_owned());
        at = node.parent;
    }
    path.reverse();
    (path, cut.nodes()[caller as usize].child_count as usize - 1)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut stacks = STACKS;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--stacks" => stacks = arguments.next().unwrap().parse().unwrap(),
            // Cargo's own.
            "--bench" => {}
            other => panic!("{other} is unknown: --stacks COUNT"),
        }
    }
    let tree = whole(stacks);
    let of = tree.total();
    println!("{} nodes, {} names, best of {ROUNDS}", tree.nodes().len(), tree.names().len());
    let to_weight = |ppm| {
        answer(&tree, |mut cut| {
            cut.truncate_to_weight(ppm, MOST);
            cut
        })
    };
    shown("first 99 %", of, to_weight(10_000));
    shown("99.5 %", of, to_weight(5_000));
    let few = answer(&tree, |mut cut| {
        cut.truncate_with_ties(NODES, MOST);
        cut
    });
    let (path, skip) = heaviest_remainder(&few.1);
    shown("as many as where none are said", of, few);
    let refined = answer(&tree, |whole| {
        // What sources send, and what is made of it.
        let below = whole.subtree_below(&path);
        let mut branch = below.subtree(below.find(&path).unwrap(), skip);
        branch.truncate_to_weight(5_000, MOST);
        branch
    });
    let of_branch = refined.1.total();
    shown("its heaviest remainder, 99.5 %", of_branch, refined);
    let root = answer(&tree, |whole| {
        let mut branch = whole.subtree(0, 0);
        branch.truncate_to_weight(5_000, MOST);
        branch
    });
    shown("all that the root calls, 99.5 %", of, root);
}
