//! Reading a block: what it holds, its tables, its rows.

use std::ops::Range;
use std::sync::Arc;

use athanor_profile::hash::Hash;
use athanor_profile::symbols::{Function, Line, Mapping, NONE};
use athanor_profile::{Dictionary, Labels, ValueType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, FixedLenByteArrayType, Int32Type, Int64Type};

use crate::columns::{TableReader, place};
use crate::error::BlockError;
use crate::folder::{Folder, Verified};
use crate::meta::{
    FILES, FUNCTIONS, INDEX, LOCATIONS, MAPPINGS, MAX_META, META, Meta, PROFILES, ROLLUP, Run, SAMPLES,
    SERIES, STACKS, TenantMeta,
};
use athanor_profile::series::{ProfileRow, Series};

/// An open block.
#[derive(Clone)]
pub struct Block {
    folder: Arc<dyn Folder>,
    meta: Arc<Meta>,
}

/// One tenant's part of an open block.
pub struct Part<'b> {
    block: &'b Block,
    /// What the block says of it.
    pub meta: &'b TenantMeta,
}

/// Totals by series and stack over a whole part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Place of the series in the part.
    pub series: Vec<u32>,
    /// Place of the stack in the part.
    pub stack: Vec<u32>,
    /// Sum of the values.
    pub value: Vec<i64>,
    /// How many rows were added up.
    pub samples: Vec<u32>,
}

/// All names of a part in a dictionary, and where each of its stacks went.
pub struct Names {
    /// The names.
    pub dictionary: Dictionary,
    /// From a stack of the part to the dictionary's.
    pub stacks: Vec<u32>,
}

impl Block {
    /// Opens a block: reads `meta.json` and compares the files' lengths with it.
    pub fn open(folder: Arc<dyn Folder>) -> Result<Self, BlockError> {
        let length = folder.length(META).map_err(BlockError::io(META))?;
        if length > MAX_META {
            return Err(BlockError::Meta { why: format!("it has {length} bytes, the limit is {MAX_META}") });
        }
        let bytes = folder.read(META, 0, length as usize).map_err(BlockError::io(META))?;
        let block = Block { folder, meta: Arc::new(Meta::decode(&bytes)?) };
        for file in FILES {
            block.verified(file)?;
        }
        Ok(block)
    }
    /// What the block says of itself.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }
    /// One tenant's part.
    pub fn part(&self, tenant: &str) -> Result<Part<'_>, BlockError> {
        let found = self.meta.tenants.iter().find(|part| part.tenant == tenant);
        let meta = found.ok_or_else(|| {
            let known: Vec<&str> =
                self.meta.tenants.iter().map(|part| part.tenant.as_str()).take(5).collect();
            BlockError::NoTenant { tenant: tenant.into(), known: known.join(", ") }
        })?;
        Ok(Part { block: self, meta })
    }
    /// All parts.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.meta.tenants.iter().map(|meta| Part { block: self, meta })
    }
    fn verified(&self, file: &'static str) -> Result<Verified, BlockError> {
        Verified::open(&self.folder, file, self.meta.file(file)?)
    }
    pub(crate) fn table(&self, file: &'static str) -> Result<TableReader, BlockError> {
        TableReader::open(file, self.verified(file)?)
    }
    /// Reads everything, so that any damage is found, and reports each page group to `progress` in bytes.
    pub fn verify(&self, mut progress: impl FnMut(u64)) -> Result<(), BlockError> {
        const STEP: u64 = 8 << 20;
        for file in FILES {
            let content = self.verified(file)?;
            let length = self.meta.file(file)?.bytes;
            for from in (0..length).step_by(STEP as usize) {
                let step = STEP.min(length - from);
                content.read(from, step as usize)?;
                progress(step);
            }
            self.table(file)?;
        }
        for part in self.parts() {
            part.verify()?;
        }
        Ok(())
    }
}

fn text(file: &str, value: &ByteArray) -> Result<String, BlockError> {
    let text =
        std::str::from_utf8(value.data()).map_err(|_| BlockError::corrupt(file, "text that is not UTF-8"))?;
    Ok(text.to_owned())
}

/// An id of the block as a place in the part.
fn within(file: &str, id: i32, run: Run) -> Result<u32, BlockError> {
    let place = u32::try_from(id).ok().and_then(|id| id.checked_sub(run.0)).filter(|&place| place < run.1);
    place.ok_or_else(|| {
        BlockError::corrupt(file, format!("id {id} is not among {}..{}", run.0, run.0 + run.1))
    })
}

/// As [`within`], with −1 for none.
fn within_or_none(file: &str, id: i32, run: Run) -> Result<u32, BlockError> {
    if id == -1 { Ok(NONE) } else { within(file, id, run) }
}

impl Part<'_> {
    pub(crate) fn groups(&self, file: &str) -> Run {
        self.meta.groups[place(file)]
    }

    /// Ids in a column must be exactly the part's, in their order.
    fn ids(&self, file: &'static str, table: &TableReader, run: Run) -> Result<(), BlockError> {
        let ids = table.run::<Int32Type>(self.groups(file), 0)?;
        if ids.len() == run.1 as usize && run.range().zip(&ids).all(|(expected, &id)| expected as i32 == id) {
            return Ok(());
        }
        Err(BlockError::corrupt(
            file,
            "its ids are not those that meta.json names: it belongs to another block",
        ))
    }

    /// The series, in their order.
    pub fn series(&self) -> Result<Vec<Series>, BlockError> {
        let table = self.block.table(SERIES)?;
        self.ids(SERIES, &table, self.meta.series)?;
        let mut all = Vec::new();
        for group in self.groups(SERIES).range() {
            let tenants = table.column::<ByteArrayType>(group, 1)?;
            if tenants.iter().any(|tenant| tenant.data() != self.meta.tenant.as_bytes()) {
                return Err(BlockError::corrupt(SERIES, "rows of another tenant"));
            }
            let labels = read_labels(&table, group)?;
            let mut types = Vec::new();
            for column in 4..8 {
                types.push(table.column::<ByteArrayType>(group, column)?);
            }
            for (row, labels) in labels.into_iter().enumerate() {
                let of_row = |column: usize| text(SERIES, &types[column][row]);
                let value_type = ValueType { kind: of_row(0)?, unit: of_row(1)? };
                let period_type = ValueType { kind: of_row(2)?, unit: of_row(3)? };
                all.push(Series::new(labels, value_type, period_type));
            }
        }
        Ok(all)
    }

    /// The profiles, by (series, time, id).
    pub fn profiles(&self) -> Result<Vec<ProfileRow>, BlockError> {
        let table = self.block.table(PROFILES)?;
        self.ids(PROFILES, &table, self.meta.profiles)?;
        let mut all = Vec::new();
        let mut samples_seen = 0u64;
        for group in self.groups(PROFILES).range() {
            let series = table.column::<Int32Type>(group, 1)?;
            let times = table.column::<Int64Type>(group, 2)?;
            let ids = table.column::<FixedLenByteArrayType>(group, 3)?;
            let durations = table.column::<Int64Type>(group, 4)?;
            let periods = table.column::<Int64Type>(group, 5)?;
            let samples = table.column::<Int32Type>(group, 6)?;
            for row in 0..series.len() {
                let id: [u8; 16] =
                    ids[row].data().try_into().map_err(|_| BlockError::corrupt(PROFILES, "a short id"))?;
                let count = u32::try_from(samples[row])
                    .map_err(|_| BlockError::corrupt(PROFILES, "negative samples"))?;
                samples_seen += u64::from(count);
                all.push(ProfileRow {
                    series: within(PROFILES, series[row], self.meta.series)?,
                    time: times[row],
                    id: Hash::from_be_bytes(id),
                    duration: durations[row],
                    period: periods[row],
                    samples: count,
                });
            }
        }
        if samples_seen != self.meta.samples {
            let expected = self.meta.samples;
            return Err(BlockError::corrupt(
                PROFILES,
                format!("{samples_seen} samples, meta.json says {expected}"),
            ));
        }
        Ok(all)
    }

    /// The roll-up.
    pub fn rollup(&self) -> Result<Rollup, BlockError> {
        let table = self.block.table(ROLLUP)?;
        let groups = self.groups(ROLLUP);
        let ids = |column: usize, run: Run| -> Result<Vec<u32>, BlockError> {
            let ids = table.run::<Int32Type>(groups, column)?;
            ids.into_iter().map(|id| within(ROLLUP, id, run)).collect()
        };
        let samples = table.run::<Int32Type>(groups, 3)?;
        Ok(Rollup {
            series: ids(0, self.meta.series)?,
            stack: ids(1, Run(self.meta.nodes.0, self.meta.stacks))?,
            value: table.run::<Int64Type>(groups, 2)?,
            samples: samples.into_iter().map(|count| count.max(0) as u32).collect(),
        })
    }

    /// Function names and the services that call them.
    pub fn services_calling(&self, function_name: &str) -> Result<Vec<String>, BlockError> {
        let functions = self.block.table(FUNCTIONS)?;
        let names = functions.run::<ByteArrayType>(self.groups(FUNCTIONS), 1)?;
        let index = self.block.table(INDEX)?;
        let of = index.run::<Int32Type>(self.groups(INDEX), 0)?;
        let services = index.run::<ByteArrayType>(self.groups(INDEX), 1)?;
        let mut found = Vec::new();
        for (function, service) in of.into_iter().zip(&services) {
            let function = within(INDEX, function, self.meta.functions)?;
            if names.get(function as usize).is_some_and(|name| name.data() == function_name.as_bytes()) {
                found.push(text(INDEX, service)?);
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Parent and location of every node, as places in the part. A parent chain always ends at a root.
    pub fn nodes(&self) -> Result<(Vec<u32>, Vec<u32>), BlockError> {
        let table = self.block.table(STACKS)?;
        self.ids(STACKS, &table, self.meta.nodes)?;
        let column = |column: usize, run: Run| -> Result<Vec<u32>, BlockError> {
            let ids = table.run::<Int32Type>(self.groups(STACKS), column)?;
            ids.into_iter().map(|id| within_or_none(STACKS, id, run)).collect()
        };
        let (parents, locations) = (column(1, self.meta.nodes)?, column(2, self.meta.locations)?);
        acyclic(&parents)?;
        Ok((parents, locations))
    }

    /// All names.
    pub fn names(&self) -> Result<Names, BlockError> {
        let (parents, of_nodes) = self.nodes()?;
        let mut dictionary = Dictionary::default();
        let locations = self.locations(&mut dictionary)?;
        let mut stacks = Vec::with_capacity(self.meta.stacks as usize);
        let mut path = Vec::new();
        for stack in 0..self.meta.stacks {
            path.clear();
            let mut node = stack;
            while let Some(&location) = of_nodes.get(node as usize) {
                if location != NONE {
                    path.push(locations[location as usize]);
                }
                node = parents[node as usize];
            }
            stacks.push(dictionary.stacks.intern(&dictionary.symbols, &path));
        }
        Ok(Names { dictionary, stacks })
    }

    /// Puts the locations with their functions and mappings into a dictionary.
    fn locations(&self, dictionary: &mut Dictionary) -> Result<Vec<u32>, BlockError> {
        let functions = self.functions(dictionary)?;
        let mappings = self.mappings(dictionary)?;
        let table = self.block.table(LOCATIONS)?;
        let groups = self.groups(LOCATIONS);
        let ids = table.run::<Int32Type>(groups, 0)?;
        let of_mappings = table.run::<Int32Type>(groups, 2)?;
        let addresses = table.run::<Int64Type>(groups, 3)?;
        let folded = table.run::<BoolType>(groups, 4)?;
        let of_functions = table.run::<Int32Type>(groups, 5)?;
        let lines = table.run::<Int64Type>(groups, 6)?;
        let columns = table.run::<Int64Type>(groups, 7)?;
        let mut all = Vec::with_capacity(self.meta.locations.1 as usize);
        let mut row = 0;
        let mut of_location = Vec::new();
        for id in self.meta.locations.range() {
            of_location.clear();
            let first = row;
            while ids.get(row).is_some_and(|&of| of as usize == id) {
                let function = within_or_none(LOCATIONS, of_functions[row], self.meta.functions)?;
                if function != NONE {
                    let function = functions[function as usize];
                    of_location.push(Line { function, line: lines[row], column: columns[row] });
                }
                row += 1;
            }
            if row == first {
                return Err(BlockError::corrupt(LOCATIONS, format!("it has no row of location {id}")));
            }
            let mapping = within_or_none(LOCATIONS, of_mappings[first], self.meta.mappings)?;
            let mapping = if mapping == NONE { NONE } else { mappings[mapping as usize] };
            let symbols = &mut dictionary.symbols;
            all.push(symbols.location(mapping, addresses[first] as u64, folded[first], &of_location));
        }
        Ok(all)
    }

    fn functions(&self, dictionary: &mut Dictionary) -> Result<Vec<u32>, BlockError> {
        let table = self.block.table(FUNCTIONS)?;
        self.ids(FUNCTIONS, &table, self.meta.functions)?;
        let groups = self.groups(FUNCTIONS);
        let names = table.run::<ByteArrayType>(groups, 1)?;
        let systems = table.run::<ByteArrayType>(groups, 2)?;
        let files = table.run::<ByteArrayType>(groups, 3)?;
        let lines = table.run::<Int64Type>(groups, 4)?;
        let mut all = Vec::with_capacity(names.len());
        for row in 0..names.len() {
            let strings = &mut dictionary.symbols.strings;
            let name = strings.intern(&text(FUNCTIONS, &names[row])?);
            let system_name = strings.intern(&text(FUNCTIONS, &systems[row])?);
            let filename = strings.intern(&text(FUNCTIONS, &files[row])?);
            all.push(dictionary.symbols.function(Function {
                name,
                system_name,
                filename,
                start_line: lines[row],
            }));
        }
        Ok(all)
    }

    fn mappings(&self, dictionary: &mut Dictionary) -> Result<Vec<u32>, BlockError> {
        let table = self.block.table(MAPPINGS)?;
        self.ids(MAPPINGS, &table, self.meta.mappings)?;
        let groups = self.groups(MAPPINGS);
        let starts = table.run::<Int64Type>(groups, 1)?;
        let sizes = table.run::<Int64Type>(groups, 2)?;
        let offsets = table.run::<Int64Type>(groups, 3)?;
        let files = table.run::<ByteArrayType>(groups, 4)?;
        let builds = table.run::<ByteArrayType>(groups, 5)?;
        let flags = table.run::<Int32Type>(groups, 6)?;
        let mut all = Vec::with_capacity(starts.len());
        for row in 0..starts.len() {
            let filename = dictionary.symbols.strings.intern(&text(MAPPINGS, &files[row])?);
            let build_id = dictionary.symbols.strings.intern(&text(MAPPINGS, &builds[row])?);
            let (start, size, offset) = (starts[row] as u64, sizes[row] as u64, offsets[row] as u64);
            let flags = flags[row] as u8;
            all.push(dictionary.symbols.mapping(Mapping { start, size, offset, filename, build_id, flags }));
        }
        Ok(all)
    }

    /// Compares the tables with each other.
    fn verify(&self) -> Result<(), BlockError> {
        self.names()?;
        self.series()?;
        let profiles = self.profiles()?;
        let mut totals = vec![0i64; self.meta.stacks as usize];
        let table = self.block.table(SAMPLES)?;
        let groups = self.groups(SAMPLES);
        let mut expected = (self.meta.profiles.0..)
            .zip(&profiles)
            .flat_map(|(id, row)| std::iter::repeat_n(id, row.samples as usize));
        for group in groups.range() {
            for id in table.column::<Int32Type>(group, 0)? {
                if expected.next() != u32::try_from(id).ok() {
                    return Err(BlockError::corrupt(
                        SAMPLES,
                        "its profiles are not those of profiles.parquet",
                    ));
                }
            }
            let (stacks, values) =
                (table.column::<Int32Type>(group, 1)?, table.column::<Int64Type>(group, 2)?);
            for (stack, value) in stacks.into_iter().zip(values) {
                let stack = within(SAMPLES, stack, Run(self.meta.nodes.0, self.meta.stacks))?;
                totals[stack as usize] = totals[stack as usize].wrapping_add(value);
            }
        }
        if expected.next().is_some() {
            return Err(BlockError::corrupt(SAMPLES, "it has too few rows"));
        }
        let rollup = self.rollup()?;
        for (&stack, &value) in rollup.stack.iter().zip(&rollup.value) {
            totals[stack as usize] = totals[stack as usize].wrapping_sub(value);
        }
        match totals.iter().position(|&rest| rest != 0) {
            Some(stack) => {
                Err(BlockError::corrupt(ROLLUP, format!("the total of stack {stack} is not its samples'")))
            }
            None => Ok(()),
        }
    }

    /// Rows of `samples.parquet`, counted within the part, of the profiles that `wanted` picks.
    pub fn rows_of(profiles: &[ProfileRow], mut wanted: impl FnMut(&ProfileRow) -> bool) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut start = 0;
        for profile in profiles {
            let end = start + u64::from(profile.samples);
            if wanted(profile) {
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
            start = end;
        }
        ranges
    }

    pub(crate) fn samples(&self) -> Result<TableReader, BlockError> {
        self.block.table(SAMPLES)
    }
}

fn read_labels(table: &TableReader, group: usize) -> Result<Vec<Labels>, BlockError> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let (mut repetition, mut definition) = (Vec::new(), Vec::new());
    table.nested::<ByteArrayType>(group, 2, (&mut keys, &mut repetition, &mut definition))?;
    let (mut repeated, mut defined) = (Vec::new(), Vec::new());
    table.nested::<ByteArrayType>(group, 3, (&mut values, &mut repeated, &mut defined))?;
    if repetition != repeated || definition != defined {
        return Err(BlockError::corrupt(SERIES, "label names and values do not pair"));
    }
    let mut pairs = keys.iter().zip(&values);
    let mut all: Vec<Labels> = Vec::new();
    for (repetition, definition) in repetition.into_iter().zip(definition) {
        if repetition == 0 {
            all.push(Labels::default());
        }
        let last =
            all.last_mut().ok_or_else(|| BlockError::corrupt(SERIES, "a label before the first row"))?;
        if definition == 1 {
            let (name, value) =
                pairs.next().ok_or_else(|| BlockError::corrupt(SERIES, "a label is missing"))?;
            last.set(&text(SERIES, name)?, &text(SERIES, value)?);
        }
    }
    Ok(all)
}

/// Every chain of parents must end: visited nodes are marked with the walk that reached them.
fn acyclic(parents: &[u32]) -> Result<(), BlockError> {
    let mut walk_of = vec![NONE; parents.len()];
    for start in 0..parents.len() as u32 {
        let mut node = start;
        while node != NONE && walk_of[node as usize] == NONE {
            walk_of[node as usize] = start;
            node = parents[node as usize];
        }
        if node != NONE && walk_of[node as usize] == start {
            return Err(BlockError::corrupt(STACKS, format!("the parents of node {node} go in a circle")));
        }
    }
    Ok(())
}
