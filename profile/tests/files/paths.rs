//! What a profile says of its stacks, by names.

use std::collections::BTreeMap;

use athanor_profile::Profile;
use athanor_profile::tree::Tree;

/// What each stack has by itself, by the names of its functions, the root first.
pub type Paths = BTreeMap<Vec<String>, i64>;

/// Adds to a stack, modulo 2^64.
pub fn add(paths: &mut Paths, path: Vec<String>, value: i64) {
    let sum = paths.entry(path).or_default();
    *sum = sum.wrapping_add(value);
}

/// How code without a function is called: by its file and where it lies in it, or by its address.
pub fn unnamed(file: Option<&str>, address: u64) -> String {
    match file {
        Some(file) => format!("{}+0x{address:x}", file.split('/').next_back().unwrap_or_default()),
        None => format!("0x{address:x}"),
    }
}

/// The stacks of one of the types of a profile, row by row.
pub fn of_profile(profile: &Profile, column: usize) -> Paths {
    let (mut paths, dictionary) = (Paths::new(), &profile.dictionary);
    let symbols = &dictionary.symbols;
    for (stack, _, values) in profile.samples.rows(profile.header.types.len()) {
        let mut path = Vec::new();
        for location in dictionary.stacks.locations(stack) {
            let (entry, lines) = (symbols.locations()[location as usize], symbols.lines(location));
            let functions = lines.iter().map(|line| symbols.functions()[line.function as usize]);
            path.extend(functions.map(|function| symbols.strings.get(function.name).to_owned()));
            if lines.is_empty() {
                let mapping = symbols.mappings().get(entry.mapping as usize);
                let file = mapping.map(|mapping| symbols.strings.get(mapping.filename));
                path.push(unnamed(file, entry.address));
            }
        }
        path.reverse();
        add(&mut paths, path, values[column]);
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
        add(&mut paths, names[at].clone(), node.own);
    }
    paths.retain(|_, value| *value != 0);
    paths
}
