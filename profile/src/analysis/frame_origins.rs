//! Where frames of a tree come from: file, line, binary and package of each name.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::analysis::origin_table::{OriginEntry, OriginTable};
use crate::call_tree::tree::FrameGrouping;
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::NO_ENTRY;

/// Origins by frame name. A name that comes from several files, binaries or packages has the heaviest of each. A stack
/// counts for each frame of the name in it, so recursion weighs more.
pub struct FrameOrigins {
    /// Texts of all names and origins, sorted.
    texts: Arc<[Arc<str>]>,
    origins: Vec<OriginIds>,
    /// Index in `origins` by text. [`NO_ENTRY`] for texts that are no name.
    by_name: Vec<u32>,
}

/// Origin of a name, as indexes of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginIds {
    /// Text of the file.
    pub file: u32,
    /// Text of the binary.
    pub binary: u32,
    /// Text of the package.
    pub package: u32,
    /// Line as in [`FrameOrigin::line`].
    pub line: i64,
}

/// Origin of a frame. Unknown parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameOrigin<'o> {
    /// Path of the source file. Empty in a tree of packages or binaries.
    pub file: &'o str,
    /// Line at which the function begins, or the heaviest line if that is unknown. In a tree of lines, the line. 0 in
    /// a tree of files, packages or binaries.
    pub line: i64,
    /// Name of the binary.
    pub binary: &'o str,
    /// Package of the function.
    pub package: &'o str,
}

impl FrameOrigins {
    /// Returns the origins of the frames of a tree with these totals by stack id.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64], grouping: FrameGrouping) -> Self {
        FrameOrigins::from_table(OriginTable::from_totals(dictionary, totals, grouping))
    }

    /// Returns the heaviest origins of each name of a table.
    pub fn from_table(table: OriginTable) -> Self {
        let OriginTable { texts, entries } = table;
        let mut by_name = vec![NO_ENTRY; texts.len()];
        let mut origins = Vec::new();
        for places in entries.chunk_by(|left, right| left.place.name == right.place.name) {
            by_name[places[0].place.name as usize] = origins.len() as u32;
            origins.push(OriginIds::heaviest(places));
        }
        FrameOrigins { texts, origins, by_name }
    }

    /// Returns the origin of a frame. Unknown names have the default.
    pub fn get(&self, name: &str) -> FrameOrigin<'_> {
        let ids = match self.texts.binary_search_by(|text| (**text).cmp(name)) {
            Ok(text) => self.ids_of_text(text),
            Err(_) => OriginIds::default(),
        };
        FrameOrigin {
            file: self.text(ids.file),
            line: ids.line,
            binary: self.text(ids.binary),
            package: self.text(ids.package),
        }
    }

    /// Returns the origins of sorted names, in one pass over all texts.
    pub fn ids_of_sorted(&self, names: &[Arc<str>]) -> Vec<OriginIds> {
        let mut text = 0;
        let find = |name: &Arc<str>| {
            while let Some(known) = self.texts.get(text) {
                match known.cmp(name) {
                    Ordering::Less => text += 1,
                    Ordering::Equal => return self.ids_of_text(text),
                    Ordering::Greater => break,
                }
            }
            OriginIds::default()
        };
        names.iter().map(find).collect()
    }

    /// Returns all texts, sorted. The empty one is first.
    pub fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    fn text(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }

    fn ids_of_text(&self, text: usize) -> OriginIds {
        self.origins.get(self.by_name[text] as usize).copied().unwrap_or_default()
    }
}

impl OriginIds {
    /// Returns the heaviest file, binary and package of one name, and the heaviest line in that file. Texts are in their
    /// order, so the first of equally heavy ones does not depend on the order of a dictionary.
    fn heaviest(entries: &[OriginEntry]) -> Self {
        if let [OriginEntry { place, .. }] = entries {
            return OriginIds {
                file: place.file,
                binary: place.binary,
                package: place.package,
                line: place.line,
            };
        }
        let functions = || entries.iter().filter(|entry| entry.place.has_function);
        let file = heaviest(functions().map(|entry| (entry.place.file, entry.weight)));
        let lines = functions().filter(|entry| entry.place.file == file);
        OriginIds {
            file,
            binary: heaviest(entries.iter().map(|entry| (entry.place.binary, entry.weight))),
            package: heaviest(functions().map(|entry| (entry.place.package, entry.weight))),
            line: heaviest(lines.map(|entry| (entry.place.line, entry.weight))),
        }
    }
}

/// Returns the key whose sum of weights has the greatest magnitude, the first of equally heavy ones. The default if
/// there is none.
fn heaviest<K: Copy + Default + Ord>(weights: impl Iterator<Item = (K, i128)>) -> K {
    let mut weights: Vec<(K, i128)> = weights.collect();
    weights.sort_unstable_by_key(|(key, _)| *key);
    let sums = weights.chunk_by(|left, right| left.0 == right.0).map(|same| {
        let sum: i128 = same.iter().map(|(_, weight)| weight).sum();
        (Reverse(sum.unsigned_abs()), same[0].0)
    });
    sums.min().map(|(_, key)| key).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_model::symbols::{Function, Line, Mapping};

    fn location(dictionary: &mut Dictionary, binary: &str, file: &str, name: &str, lines: (i64, i64)) -> u32 {
        let symbols = &mut dictionary.symbols;
        let filename = symbols.strings.intern(binary);
        let mapping = symbols.intern_mapping(Mapping {
            start: 0,
            size: 1 << 20,
            offset: 0,
            filename,
            build_id: 0,
            flags: 1,
        });
        let name = symbols.strings.intern(name);
        let filename = symbols.strings.intern(file);
        let function =
            symbols.intern_function(Function { name, system_name: name, filename, start_line: lines.0 });
        symbols.intern_location(
            mapping,
            lines.1 as u64,
            false,
            &[Line { function, line: lines.1, column: 0 }],
        )
    }

    #[test]
    fn sign_of_a_weight_counts() {
        let mut dictionary = Dictionary::default();
        let light = location(&mut dictionary, "/bin/a", "/src/a/run.go", "run", (0, 7));
        let other = location(&mut dictionary, "/lib/b", "/src/b/run.go", "run", (0, 8));
        let another = location(&mut dictionary, "/lib/b", "/src/b/run.go", "run", (0, 9));
        for leaf in [light, other, another] {
            dictionary.stacks.intern(&dictionary.symbols, &[leaf]);
        }
        let place = |totals: [i64; 3]| {
            let origins = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Function);
            let FrameOrigin { file, line, .. } = origins.get("run");
            (file.to_owned(), line)
        };
        assert_eq!(place([3, -2, 4]), ("/src/a/run.go".to_owned(), 7), "3 against 2");
        assert_eq!(place([3, -2, -4]), ("/src/b/run.go".to_owned(), 9), "3 against 6");
        let largest = [i64::MAX, i64::MIN, i64::MIN];
        assert_eq!(place(largest), ("/src/b/run.go".to_owned(), 8), "no sum wraps");
    }

    #[test]
    fn origin_of_name_is_its_heaviest_place() {
        let mut dictionary = Dictionary::default();
        let root = location(&mut dictionary, "/bin/a", "/src/main.go", "main.main", (10, 12));
        let old = location(&mut dictionary, "/bin/a", "/src/a/run.go", "run", (0, 7));
        let heavy = location(&mut dictionary, "/lib/b", "/src/b/run.go", "run", (0, 8));
        let heavier = location(&mut dictionary, "/lib/b", "/src/b/run.go", "run", (0, 9));
        let paths = [[old, root], [heavy, root], [heavier, root]];
        for path in paths {
            dictionary.stacks.intern(&dictionary.symbols, &path);
        }
        let totals = [5, 2, 4];
        let origins = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Function);
        let main = FrameOrigin { file: "/src/main.go", line: 10, binary: "a", package: "main" };
        assert_eq!(origins.get("main.main"), main);
        let run = FrameOrigin { file: "/src/b/run.go", line: 9, binary: "b", package: "b" };
        assert_eq!(origins.get("run"), run);
        assert_eq!(origins.get("nothing"), FrameOrigin::default());
        let names = ["", "main.main", "nothing", "run", "zzz"].map(Arc::from);
        let ids = origins.ids_of_sorted(&names);
        let texts =
            |ids: &OriginIds| [ids.file, ids.binary, ids.package].map(|id| &*origins.texts()[id as usize]);
        assert_eq!(texts(&ids[1]), ["/src/main.go", "a", "main"]);
        assert_eq!((texts(&ids[3]), ids[3].line), (["/src/b/run.go", "b", "b"], 9));
        assert_eq!([ids[0], ids[2], ids[4]], [OriginIds::default(); 3]);
        let lines = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Line);
        assert_eq!(lines.get("run /src/b/run.go:8").line, 8);
        let files = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::File);
        let file = FrameOrigin { file: "/src/b/run.go", line: 0, binary: "b", package: "b" };
        assert_eq!(files.get("/src/b/run.go"), file);
        let packages = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Package);
        assert_eq!(packages.get("b"), FrameOrigin { file: "", ..file });
        let binaries = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Binary);
        assert_eq!(binaries.get("b"), FrameOrigin { file: "", ..file });
    }
}
