//! What a profile says of its stacks, by names.

use std::collections::BTreeMap;

use athanor_profile::Profile;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::data_model::symbols::Mapping;

/// What each stack has by itself, by the names of its functions, the root first.
pub type Paths = BTreeMap<Vec<String>, i64>;

/// Adds to a stack, modulo 2^64.
pub fn add(paths: &mut Paths, path: Vec<String>, value: i64) {
    let sum = paths.entry(path).or_default();
    *sum = sum.wrapping_add(value);
}

/// A frame of a path: a function, or code without one.
#[derive(PartialEq, Eq)]
pub enum Frame {
    Function(String),
    /// By its file and the beginning of its build id.
    Binary(String),
}

/// Code without a function in a file of that path and build id.
pub fn unnamed(file: &str, build_id: &str) -> Frame {
    let file = file.split('/').next_back().unwrap_or_default();
    let name = match build_id.get(..build_id.len().min(8)).unwrap_or_default() {
        "" => file.to_owned(),
        build_id => format!("{file}@{build_id}"),
    };
    Frame::Binary(if name.is_empty() { "[unknown]".to_owned() } else { name })
}

/// The names of frames, leaf first, from the root on. What follows each other in one binary is one.
pub fn named(mut leaf_first: Vec<Frame>) -> Vec<String> {
    leaf_first.dedup_by(|one, other| matches!(one, Frame::Binary(_)) && one == other);
    let name = |frame| match frame {
        Frame::Function(name) | Frame::Binary(name) => name,
    };
    leaf_first.into_iter().rev().map(name).collect()
}

/// The stacks of one of the types of a profile, row by row.
pub fn of_profile(profile: &Profile, column: usize) -> Paths {
    of_frames(profile, column, |name, _, _| name.to_owned())
}

/// The same by lines of functions, as graphs of calls write them.
pub fn of_lines(profile: &Profile, column: usize) -> Paths {
    of_frames(profile, column, |name, file, line| {
        let written = match (file, line) {
            ("", 0) => name.to_owned(),
            (file, 0) => format!("{name} {file}"),
            (file, line) => format!("{name} {file}:{line}"),
        };
        written.replace(['\n', '\r'], " ")
    })
}

fn of_frames(profile: &Profile, column: usize, frame: impl Fn(&str, &str, i64) -> String) -> Paths {
    let (mut paths, dictionary) = (Paths::new(), &profile.dictionary);
    let symbols = &dictionary.symbols;
    for (stack, _, values) in profile.samples.rows(profile.header.types.len()) {
        let mut path = Vec::new();
        for location in dictionary.stacks.locations(stack) {
            let (entry, lines) = (symbols.locations()[location as usize], symbols.lines(location));
            path.extend(lines.iter().map(|line| {
                let function = symbols.functions()[line.function as usize];
                let [name, file] = [function.name, function.filename].map(|text| symbols.strings.get(text));
                Frame::Function(frame(name, file, line.line))
            }));
            if lines.is_empty() {
                let mapping = symbols.mappings().get(entry.mapping as usize);
                let text =
                    |of: fn(&Mapping) -> u32| mapping.map_or("", |mapping| symbols.strings.get(of(mapping)));
                let binary = unnamed(text(|mapping| mapping.filename), text(|mapping| mapping.build_id));
                path.push(match binary {
                    Frame::Binary(name) => Frame::Binary(frame(&name, "", 0)),
                    named => named,
                });
            }
        }
        add(&mut paths, named(path), values[column]);
    }
    paths.retain(|_, value| *value != 0);
    paths
}

/// The same of a tree.
pub fn of_tree(tree: &Tree) -> Paths {
    let mut paths = Paths::new();
    let mut names: Vec<Vec<String>> = vec![Vec::new()];
    for (at, node) in tree.nodes().iter().enumerate() {
        if at > 0 {
            let mut path = names[node.parent as usize].clone();
            path.push(tree.name(node).to_owned());
            names.push(path);
        }
        add(&mut paths, names[at].clone(), node.self_value);
    }
    paths.retain(|_, value| *value != 0);
    paths
}
