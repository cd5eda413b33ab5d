//! Profile of stacks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use athanor_profile::data_model::symbols::{ELF_ADDRESSES_FLAG, Function, Line, Mapping, NO_ENTRY};
use athanor_profile::{Profile, ProfileHeader, ValueType};

use super::UnnamedFrames;
use crate::frame::{FileId, FrameCode};
use crate::layout::StackEnd;
use crate::window::{CountedStack, FrameName, SampleWindow, SampledFile};

/// Mapping of the kernel.
const KERNEL_MAPPING: &str = "[kernel.kallsyms]";
/// Module of names of the kernel itself.
const KERNEL_MODULE: &str = "[kernel]";
/// Name of all code outside of files.
const ANONYMOUS_NAME: &str = "[anonymous]";
/// Name of a file that the window does not list, and of a stack without frames.
const UNKNOWN_NAME: &str = "[unknown]";
/// Flag of mappings whose locations have functions.
const HAS_FUNCTIONS_FLAG: u8 = 1;

/// Builder of one profile.
pub(super) struct ProfileBuilder<'a> {
    window: &'a SampleWindow,
    unnamed: UnnamedFrames,
    files: HashMap<FileId, &'a SampledFile>,
    files_with_names: HashSet<FileId>,
    locations: HashMap<FrameCode, u32>,
    profile: Profile,
}

/// Mapping of a frame, and the name of its file without the folder.
struct FrameMapping {
    id: u32,
    file_name: Arc<str>,
}

impl<'a> ProfileBuilder<'a> {
    pub(super) fn new(window: &'a SampleWindow, unnamed: UnnamedFrames) -> Self {
        let files_with_names = window.names.keys().filter_map(|code| match code {
            FrameCode::File { file, .. } => Some(*file),
            FrameCode::Kernel(_) | FrameCode::Other(_) => None,
        });
        Self {
            window,
            unnamed,
            files: window.files.iter().map(|file| (file.id, file)).collect(),
            files_with_names: files_with_names.collect(),
            locations: HashMap::new(),
            profile: Profile { header: header(window), ..Profile::default() },
        }
    }

    pub(super) fn build<'s>(mut self, stacks: impl Iterator<Item = &'s CountedStack>) -> Profile {
        let mut stacks: Vec<&CountedStack> = stacks.collect();
        stacks.sort_by_cached_key(|stack| sort_key(stack));
        for stack in stacks {
            self.add(stack);
        }
        self.profile.compact();
        self.profile
    }

    fn add(&mut self, stack: &CountedStack) {
        let mut path: Vec<u32> = stack.frames.iter().map(|frame| self.location(frame.code())).collect();
        if let Some(name) = end_name(stack.end) {
            path.push(self.named_location(NO_ENTRY, 0, &name, None));
        }
        if path.is_empty() {
            path.push(self.named_location(NO_ENTRY, 0, UNKNOWN_NAME, None));
        }
        let dictionary = &mut self.profile.dictionary;
        let id = dictionary.stacks.intern(&dictionary.symbols, &path);
        let values = [stack.samples, stack.nanos].map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        self.profile.samples.push(id, 0, &values);
    }

    fn location(&mut self, code: FrameCode) -> u32 {
        if let Some(location) = self.locations.get(&code) {
            return *location;
        }
        let window = self.window;
        let name = window.names.get(&code);
        let location = match code {
            FrameCode::Kernel(address) => {
                let mapping = self.kernel_mapping(name);
                self.code_location(&mapping, address, name)
            }
            FrameCode::File { file, address } => {
                let mapping = self.file_mapping(file);
                self.code_location(&mapping, address, name)
            }
            FrameCode::Other(_) => self.named_location(NO_ENTRY, 0, ANONYMOUS_NAME, None),
        };
        self.locations.insert(code, location);
        location
    }

    fn code_location(&mut self, mapping: &FrameMapping, address: u64, name: Option<&FrameName>) -> u32 {
        match (name, self.unnamed) {
            (Some(name), _) => {
                self.named_location(mapping.id, address, &name.function, name.system_name.as_deref())
            }
            (None, UnnamedFrames::Display) => {
                let name = format!("{}+0x{address:x}", mapping.file_name);
                self.named_location(mapping.id, address, &name, None)
            }
            (None, UnnamedFrames::AddressOnly) => {
                self.profile.dictionary.symbols.intern_location(mapping.id, address, false, &[])
            }
        }
    }

    fn named_location(&mut self, mapping: u32, address: u64, name: &str, system_name: Option<&str>) -> u32 {
        let symbols = &mut self.profile.dictionary.symbols;
        let function = Function {
            name: symbols.strings.intern(name),
            system_name: symbols.strings.intern(system_name.unwrap_or(name)),
            filename: 0,
            start_line: 0,
        };
        let function = symbols.intern_function(function);
        symbols.intern_location(mapping, address, false, &[Line { function, line: 0, column: 0 }])
    }

    /// Returns the mapping of the kernel or of the module of a name.
    fn kernel_mapping(&mut self, name: Option<&FrameName>) -> FrameMapping {
        let module = name.map(|name| &*name.module).filter(|module| !matches!(*module, "" | KERNEL_MODULE));
        let flags = if name.is_some() { HAS_FUNCTIONS_FLAG } else { 0 };
        let id = self.mapping(module.unwrap_or(KERNEL_MAPPING), "", flags);
        FrameMapping { id, file_name: KERNEL_MODULE.into() }
    }

    fn file_mapping(&mut self, id: FileId) -> FrameMapping {
        let file = self.files.get(&id).copied();
        let path = file.map_or(UNKNOWN_NAME, |file| &file.path);
        let build_id = file.map_or("", |file| &file.build_id);
        let has_names = self.files_with_names.contains(&id);
        let flags = ELF_ADDRESSES_FLAG | if has_names { HAS_FUNCTIONS_FLAG } else { 0 };
        FrameMapping { id: self.mapping(path, build_id, flags), file_name: file_name(path).into() }
    }

    fn mapping(&mut self, filename: &str, build_id: &str, flags: u8) -> u32 {
        let symbols = &mut self.profile.dictionary.symbols;
        let mapping = Mapping {
            start: 0,
            size: 0,
            offset: 0,
            filename: symbols.strings.intern(filename),
            build_id: symbols.strings.intern(build_id),
            flags,
        };
        symbols.intern_mapping(mapping)
    }
}

fn sort_key(stack: &CountedStack) -> (Vec<u64>, StackEnd) {
    (stack.frames.iter().map(|frame| frame.0).collect(), stack.end)
}

fn header(window: &SampleWindow) -> ProfileHeader {
    ProfileHeader {
        types: vec![ValueType::new("samples", "count"), ValueType::new("cpu", "nanoseconds")],
        period_type: Some(ValueType::new("cpu", "nanoseconds")),
        period: i64::try_from(window.period_nanos).unwrap_or(i64::MAX),
        time_nanos: window.started_at.nanos(),
        duration_nanos: i64::try_from(window.duration.as_nanos()).unwrap_or(i64::MAX),
        ..ProfileHeader::default()
    }
}

/// Returns the root frame of a stack that is not complete.
fn end_name(end: StackEnd) -> Option<String> {
    match end {
        StackEnd::Complete => None,
        StackEnd::Truncated => Some("[truncated]".to_owned()),
        reason => Some(format!("[incomplete: {}]", reason.name())),
    }
}

/// Returns the last part of a path that is not empty.
fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(UNKNOWN_NAME)
}
