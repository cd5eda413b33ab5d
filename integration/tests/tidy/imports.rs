//! Measure of import cycles between the files of one crate.

use std::collections::BTreeMap;

use super::measurement::{Measurement, Place};
use super::source::{SourceFile, Workspace};
use super::tokens::{Token, text_at};

/// Files that the finding of a cycle names.
const MAX_LISTED_FILES: usize = 12;

/// Module that a file owns. The library and the program of one crate are one tree, since their files do not overlap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ModuleId {
    /// Folder of the crate.
    crate_path: String,
    modules: Vec<String>,
}

impl ModuleId {
    /// Returns the module of a file; a file outside of `src` has none.
    fn from_file(path: &str) -> Option<Self> {
        let (folder, inner) = path.split_once("/src/")?;
        let stem = inner.strip_suffix(".rs")?;
        let is_root = matches!(stem, "lib" | "main");
        let modules = if is_root { Vec::new() } else { stem.split('/').map(str::to_owned).collect() };
        Some(Self { crate_path: folder.to_owned(), modules })
    }
    /// Returns whether the module tree connects the modules: one is the other, or lies in it.
    fn is_related_to(&self, other: &Self) -> bool {
        self.modules.starts_with(&other.modules) || other.modules.starts_with(&self.modules)
    }
    /// Returns the module at a path that is written in this module.
    fn resolve(&self, path: &[&str], owners: &BTreeMap<ModuleId, usize>) -> Option<Self> {
        let mut found = self.clone();
        for (index, part) in path.iter().enumerate() {
            match *part {
                "crate" => found.modules.clear(),
                "self" if index == 0 => {}
                "super" => drop(found.modules.pop()),
                name => {
                    let mut inner = found.clone();
                    inner.modules.push(name.to_owned());
                    if !owners.contains_key(&inner) {
                        break;
                    }
                    found = inner;
                }
            }
        }
        owners.contains_key(&found).then_some(found)
    }
}

/// Path of a use declaration inside its crate.
struct ImportPath<'a> {
    parts: Vec<&'a str>,
    line: usize,
}

/// Files as nodes, imports as edges: for each file the files it imports, with the first line that does.
type ImportGraph = Vec<BTreeMap<usize, usize>>;

/// Counts import cycles: groups of files that import each other, directly or through others. What the module tree
/// implies does not count: imports of files that a file is declared in, or that it declares.
pub fn import_cycles(workspace: &Workspace) -> Measurement {
    let graph = import_graph(&workspace.files);
    let cycles = find_cycles(&graph);
    Measurement::count_of(cycles.iter().map(|cycle| cycle_place(&workspace.files, &graph, cycle)).collect())
}

fn cycle_place(files: &[SourceFile], graph: &ImportGraph, cycle: &[usize]) -> Place {
    let first = cycle[0];
    let inner = graph[first].iter().find(|(imported, _)| cycle.contains(imported));
    let line = inner.map_or(0, |(_, line)| *line);
    let paths: Vec<&str> = cycle.iter().map(|&file| files[file].path.as_str()).collect();
    let listed = paths[..paths.len().min(MAX_LISTED_FILES)].join(", ");
    let end = if paths.len() > MAX_LISTED_FILES { ", …" } else { "" };
    let detail = format!("{} files import each other: {listed}{end}", cycle.len());
    Place { path: files[first].path.clone(), line, weight: cycle.len(), detail }
}

fn import_graph(files: &[SourceFile]) -> ImportGraph {
    let ids: Vec<Option<ModuleId>> = files.iter().map(|file| ModuleId::from_file(&file.path)).collect();
    let named = ids.iter().enumerate().filter_map(|(index, id)| Some((id.clone()?, index)));
    let owners: BTreeMap<ModuleId, usize> = named.collect();
    let mut graph = vec![BTreeMap::new(); files.len()];
    for (index, id) in ids.iter().enumerate() {
        let Some(id) = id else { continue };
        for import in find_imports(&files[index].tokens) {
            if let Some(imported) = id.resolve(&import.parts, &owners)
                && !imported.is_related_to(id)
            {
                graph[index].entry(owners[&imported]).or_insert(import.line);
            }
        }
    }
    graph
}

/// Returns all paths of use declarations that begin with `crate`, `super` or `self`.
fn find_imports(tokens: &[Token]) -> Vec<ImportPath<'_>> {
    let mut imports = Vec::new();
    // The bounds `use<'a>` of a type are no declaration.
    let is_declaration = |index: &usize| tokens[*index].text == "use" && text_at(tokens, index + 1) != "<";
    for index in (0..tokens.len()).filter(is_declaration) {
        read_tree(tokens, index + 1, &[], &mut imports);
    }
    imports.retain(|import| matches!(import.parts.first(), Some(&("crate" | "super" | "self"))));
    imports
}

/// Reads one tree of a use declaration and returns the index after it.
fn read_tree<'a>(
    tokens: &'a [Token],
    start: usize,
    prefix: &[&'a str],
    imports: &mut Vec<ImportPath<'a>>,
) -> usize {
    let mut parts = prefix.to_vec();
    let mut index = start;
    loop {
        match text_at(tokens, index) {
            "{" => {
                index += 1;
                while !matches!(text_at(tokens, index), "}" | ";" | "") {
                    index = read_tree(tokens, index, &parts, imports);
                    index += usize::from(text_at(tokens, index) == ",");
                }
                return index + 1;
            }
            "::" => index += 1,
            "as" => index += 2,
            "," | ";" | "}" | "" => break,
            name => {
                parts.push(name);
                index += 1;
            }
        }
    }
    let line = tokens.get(start).map_or(0, |token| token.line);
    imports.push(ImportPath { parts, line });
    index
}

/// Returns the groups of more than one file that reach each other.
fn find_cycles(graph: &ImportGraph) -> Vec<Vec<usize>> {
    let reached: Vec<Vec<bool>> = (0..graph.len()).map(|start| reach_from(graph, start)).collect();
    let mut cycles = Vec::new();
    let mut is_grouped = vec![false; graph.len()];
    for start in 0..graph.len() {
        let is_mutual = |&other: &usize| reached[start][other] && reached[other][start];
        let group: Vec<usize> = (0..graph.len()).filter(is_mutual).collect();
        if group.len() > 1 && !is_grouped[start] {
            group.iter().for_each(|&file| is_grouped[file] = true);
            cycles.push(group);
        }
    }
    cycles
}

/// Returns for each file whether imports lead to it from the first.
fn reach_from(graph: &ImportGraph, start: usize) -> Vec<bool> {
    let mut is_reached = vec![false; graph.len()];
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for &imported in graph[file].keys() {
            if !is_reached[imported] {
                is_reached[imported] = true;
                open.push(imported);
            }
        }
    }
    is_reached
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::workspace_of;
    use super::*;

    #[test]
    fn files_that_import_each_other_are_one_cycle() {
        let measured = import_cycles(&workspace_of(&[
            ("a/src/lib.rs", "mod b;\nmod d;\nmod f;\npub use b::B;\n"),
            ("a/src/b.rs", "mod c;\nuse std::fmt;\nuse self::c::C;\n\nuse crate::{x, d::{self, D as E}};\n"),
            ("a/src/b/c.rs", "use super::{B, super::f::F};\nuse crate::b::B;\n"),
            ("a/src/d.rs", "use super::b::c::C;\n"),
            ("a/src/f.rs", "use super::b::B;\n"),
            ("b/src/lib.rs", "mod b;\nmod d;\n"),
            ("b/src/b.rs", "use crate::d::D;\n"),
            ("b/src/d.rs", "use d::D;\nfn b<'a>() -> impl Sized + use<'a> { a; }\n"),
        ]));
        assert_eq!(measured.tenths, 10);
        let expected =
            "a/src/b.rs:5: 4 files import each other: a/src/b.rs, a/src/b/c.rs, a/src/d.rs, a/src/f.rs";
        assert_eq!(measured.places[0].to_string(), expected);
    }

    #[test]
    fn imports_along_the_module_tree_do_not_count() {
        let measured = import_cycles(&workspace_of(&[
            ("a/src/lib.rs", "use crate::b::c::C;\n"),
            ("a/src/main.rs", "use crate::b::B;\n"),
            ("a/src/b.rs", "use self::c::C;\nuse super::A;\n"),
            ("a/src/b/c.rs", "use super::B;\nuse super::super::A;\n"),
        ]));
        assert_eq!(measured.tenths, 0);
    }
}
