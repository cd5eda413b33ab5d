//! Symbolization of instruction addresses in this process: functions, also inlined ones, with their files and
//! lines.
//!
//! Debug information takes more memory than the program. So it is opened after sampling ends, and closed
//! after each batch of addresses.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use addr2line::Loader;
use athanor_profile::Profile;
use athanor_profile::data_model::symbols::{Function, Line, NO_ENTRY};

use super::sampler::LoadedModule;

/// Number of addresses per batch, after which the memory is freed. Addresses are sorted, so few units are
/// read more than once.
const ADDRESSES_PER_BATCH: usize = 512;
/// Maximum number of different addresses that are named. The others appear as numbers.
const MAX_NAMED_ADDRESSES: usize = 32_768;

/// Name of a function and its position in the source.
#[derive(Default)]
struct FrameName {
    name: String,
    system_name: String,
    filename: String,
    line: i64,
}

/// Adds a location for each address to the dictionary of a profile. An address without a name becomes
/// `file+0x1234`.
pub fn add_locations(
    profile: &mut Profile,
    modules: &[LoadedModule],
    addresses: HashSet<usize>,
) -> HashMap<usize, u32> {
    let mut locations = HashMap::with_capacity(addresses.len());
    let mut addresses: Vec<usize> = addresses.into_iter().collect();
    for address in addresses.drain(MAX_NAMED_ADDRESSES.min(addresses.len())..) {
        locations.insert(address, add_unnamed(profile, &format!("0x{address:x}")));
    }
    addresses.sort_unstable();
    for module in modules {
        for range in &module.ranges {
            for batch in select_range(&addresses, range).chunks(ADDRESSES_PER_BATCH) {
                let file = module.file().and_then(|path| Loader::new(path).ok());
                for &address in batch {
                    let lines = add_lines(profile, file.as_ref(), module, address);
                    let location = profile.dictionary.symbols.intern_location(NO_ENTRY, 0, false, &lines);
                    locations.insert(address, location);
                }
            }
        }
    }
    for address in addresses {
        locations.entry(address).or_insert_with(|| add_unnamed(profile, &format!("0x{address:x}")));
    }
    locations
}

/// Returns the part of sorted addresses within a range.
fn select_range<'a>(addresses: &'a [usize], range: &Range<usize>) -> &'a [usize] {
    let start = addresses.partition_point(|&address| address < range.start);
    let end = addresses.partition_point(|&address| address < range.end);
    &addresses[start..end.max(start)]
}

/// Adds the functions at an address, the innermost first.
fn add_lines(
    profile: &mut Profile,
    file: Option<&Loader>,
    module: &LoadedModule,
    address: usize,
) -> Vec<Line> {
    let offset = address.wrapping_sub(module.bias) as u64;
    let mut frames = file.map_or_else(Vec::new, |file| read_frames(file, offset));
    if let Some(symbol) = file.and_then(|file| file.find_symbol(offset)) {
        // Debug information with lines only gives names without their modules. Symbols contain modules, but
        // not inlined functions. A library without debug information still has symbols.
        if frames.is_empty() {
            frames.push(FrameName::default());
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.name = addr2line::demangle_auto(symbol.into(), None).into_owned();
            outermost.system_name = symbol.to_owned();
        }
    }
    if frames.is_empty() {
        let name = format!("{}+0x{offset:x}", module.name());
        frames.push(FrameName { system_name: name.clone(), name, ..FrameName::default() });
    }
    frames.iter().map(|frame| add_line(profile, frame)).collect()
}

/// Reads the functions at an address of a file from its debug information.
fn read_frames(file: &Loader, offset: u64) -> Vec<FrameName> {
    let mut names = Vec::new();
    let Ok(mut frames) = file.find_frames(offset) else { return names };
    while let Ok(Some(frame)) = frames.next() {
        let Some(function) = &frame.function else { continue };
        let Ok(name) = function.demangle() else { continue };
        let Ok(system_name) = function.raw_name() else { continue };
        let location = frame.location.as_ref();
        names.push(FrameName {
            name: name.into_owned(),
            system_name: system_name.into_owned(),
            filename: location.and_then(|location| location.file).unwrap_or_default().to_owned(),
            line: i64::from(location.and_then(|location| location.line).unwrap_or_default()),
        });
    }
    names
}

/// Adds a location of one frame without a function.
pub fn add_unnamed(profile: &mut Profile, name: &str) -> u32 {
    let frame = FrameName { name: name.to_owned(), system_name: name.to_owned(), ..FrameName::default() };
    let line = add_line(profile, &frame);
    profile.dictionary.symbols.intern_location(NO_ENTRY, 0, false, &[line])
}

fn add_line(profile: &mut Profile, frame: &FrameName) -> Line {
    let symbols = &mut profile.dictionary.symbols;
    let name = symbols.strings.intern(&frame.name);
    let system_name = symbols.strings.intern(&frame.system_name);
    let filename = symbols.strings.intern(&frame.filename);
    let function = symbols.intern_function(Function { name, system_name, filename, start_line: 0 });
    Line { function, line: frame.line, column: 0 }
}
