//! Names of the kernel and its modules, from the text of kallsyms.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of kallsyms that are read.
const MAX_KALLSYMS_BYTES: u64 = 64 << 20;
/// Maximum bytes of a line. Longer ones are skipped.
const MAX_LINE_BYTES: u64 = 1024;
/// Maximum number of symbols.
const MAX_SYMBOLS: usize = 400_000;
/// Maximum bytes of all names.
const MAX_NAMES_BYTES: usize = 16 << 20;
/// Maximum number of modules.
const MAX_MODULES: usize = 4096;
/// Maximum distance of an address from the start of its function.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Addresses below belong to processes and to data per CPU.
const LOWEST_KERNEL_ADDRESS: u64 = 1 << 63;
/// Module of the kernel itself.
const KERNEL_MODULE: &str = "[kernel]";
/// Symbols that mark the end of code and name nothing.
const END_MARKS: [&str; 2] = ["_etext", "_einittext"];
/// Symbols that mark the start of code and name nothing if there is another one.
const START_MARKS: [&str; 3] = ["_text", "_stext", "_sinittext"];
/// Prefix of the padding before a function.
const PADDING_PREFIX: &str = "__pfx_";

/// Reason why the kernel's symbols cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KernelSymbolsError {
    /// The file cannot be read.
    #[error("failed to read kernel symbols from {path}; kernel frames get no names: {error}")]
    Read {
        /// Path of the file.
        path: String,
        /// Cause.
        error: std::io::Error,
    },
    /// All addresses are zero.
    #[error(
        "kernel symbols are restricted: all {symbols} addresses are 0; kernel frames get no names; grant CAP_SYSLOG or set \
         kernel.kptr_restrict to 0"
    )]
    Restricted {
        /// Number of symbols seen.
        symbols: usize,
    },
    /// The table exceeds its part of the memory of names.
    #[error(
        "kernel symbols take {bytes} bytes, their limit is {limit}, half of the memory for names; kernel frames get no names; \
         raise sampler.max_memory_bytes"
    )]
    TooLarge {
        /// Bytes of the table.
        bytes: usize,
        /// Maximum bytes.
        limit: usize,
    },
    /// There are no functions.
    #[error("kernel symbols have no functions in {lines} lines; kernel frames get no names")]
    Empty {
        /// Number of lines.
        lines: usize,
    },
}

/// Function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    /// Address of its first instruction.
    pub start: u64,
    /// Name.
    pub name: &'a str,
    /// `[kernel]`, or the name of the module.
    pub module: &'a str,
}

/// Symbol: address and place of the name.
#[derive(Clone, Copy, Debug)]
struct KernelSymbol {
    /// Address, counted from the lowest one.
    address: u32,
    /// Offset of the name.
    name: u32,
    /// Index of the module.
    module: u16,
    name_bytes: u16,
}

/// Open kallsyms. The kernel checks the privileges of the opener, so a process that opens it before it drops
/// `CAP_SYSLOG` reads addresses later.
#[derive(Clone, Debug)]
pub struct KernelSymbolFile {
    path: PathBuf,
    file: Arc<File>,
}

impl KernelSymbolFile {
    /// Opens kallsyms of a folder of proc.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened.
    pub fn open(proc_folder: &Path) -> std::io::Result<Self> {
        let path = proc_folder.join("kallsyms");
        let file = Arc::new(File::open(&path)?);
        Ok(Self { path, file })
    }
}

/// Equal if it is the same open file.
impl PartialEq for KernelSymbolFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Eq for KernelSymbolFile {}

/// Reader from the start of a shared file.
struct FileReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Functions of the kernel and its modules, sorted by address. Data symbols are left out.
#[derive(Clone, Debug)]
pub struct KernelSymbols {
    base: u64,
    symbols: Vec<KernelSymbol>,
    names: String,
    modules: Vec<String>,
    dropped: u64,
}

impl KernelSymbols {
    /// Reads kallsyms.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is restricted, or has no functions.
    pub fn read(file: &KernelSymbolFile) -> Result<Self, KernelSymbolsError> {
        let failure = |error| KernelSymbolsError::Read { path: file.path.display().to_string(), error };
        let file = FileReader { file: &file.file, offset: 0 };
        let mut builder = TableBuilder::default();
        builder.read(BufReader::with_capacity(64 << 10, file.take(MAX_KALLSYMS_BYTES))).map_err(failure)?;
        builder.build()
    }

    /// Parses the text of kallsyms.
    ///
    /// # Errors
    ///
    /// Fails if the text is restricted or has no functions.
    pub fn parse(text: &[u8]) -> Result<Self, KernelSymbolsError> {
        let mut builder = TableBuilder::default();
        let failure = |error| KernelSymbolsError::Read { path: "text".to_owned(), error };
        builder.read(text.take(MAX_KALLSYMS_BYTES)).map_err(failure)?;
        builder.build()
    }

    /// Returns the function at an address.
    pub fn function_at(&self, address: u64) -> Option<KernelFunction<'_>> {
        let distance = address.checked_sub(self.base)?;
        let end = self.symbols.partition_point(|symbol| u64::from(symbol.address) <= distance);
        let nearest = self.symbols.get(end.checked_sub(1)?)?;
        let start = self.base + u64::from(nearest.address);
        let name = self.name(nearest)?;
        let is_function = address - start < MAX_FUNCTION_BYTES && !END_MARKS.contains(&name);
        let module = self.modules.get(usize::from(nearest.module)).map_or(KERNEL_MODULE, String::as_str);
        is_function.then_some(KernelFunction { start, name, module })
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Returns the number of symbols that exceeded a bound.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the bytes of memory.
    pub fn memory(&self) -> usize {
        let modules: usize = self.modules.iter().map(|name| name.capacity() + size_of::<String>()).sum();
        self.symbols.capacity() * size_of::<KernelSymbol>() + self.names.capacity() + modules
    }

    fn name(&self, symbol: &KernelSymbol) -> Option<&str> {
        let start = symbol.name as usize;
        self.names.get(start..start.checked_add(usize::from(symbol.name_bytes))?)
    }
}

/// Line of kallsyms.
struct KernelSymbolLine<'a> {
    address: u64,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

fn parse_line(line: &str) -> Option<KernelSymbolLine<'_>> {
    let mut fields = line.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = *fields.next()?.as_bytes().first()?;
    let name = fields.next()?;
    let module = fields.next().and_then(|module| module.strip_prefix('[')?.strip_suffix(']'));
    let module = module.filter(|module| !module.is_empty());
    Some(KernelSymbolLine { address, kind, name, module })
}

#[derive(Default)]
struct TableBuilder {
    lines: usize,
    restricted: usize,
    found: Vec<FoundKernelSymbol>,
    names: String,
    modules: Vec<String>,
    module_indexes: HashMap<String, u16>,
    dropped: u64,
}

struct FoundKernelSymbol {
    address: u64,
    /// Symbols of one address: the lowest rank names it.
    rank: u8,
    name: u32,
    name_bytes: u16,
    module: u16,
}

impl TableBuilder {
    fn read(&mut self, mut text: impl BufRead) -> std::io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut text).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            self.lines += 1;
            if let Some(parsed) = std::str::from_utf8(&line).ok().and_then(parse_line) {
                self.add(&parsed);
            }
        }
    }

    fn add(&mut self, line: &KernelSymbolLine<'_>) {
        if !matches!(line.kind, b't' | b'T' | b'w' | b'W') || line.name.starts_with(PADDING_PREFIX) {
            return;
        }
        if line.address == 0 {
            self.restricted += 1;
            return;
        }
        if line.address < LOWEST_KERNEL_ADDRESS {
            return;
        }
        let is_full = self.found.len() >= MAX_SYMBOLS || self.names.len() + line.name.len() > MAX_NAMES_BYTES;
        let module = line.module.map_or(Some(u16::MAX), |name| self.module_index(name));
        let (Some(module), false) = (module, is_full) else {
            self.dropped += 1;
            return;
        };
        let is_start_mark = START_MARKS.contains(&line.name);
        let rank = u8::from(is_start_mark) << 1 | u8::from(line.kind.is_ascii_lowercase());
        let name = self.names.len() as u32;
        self.names.push_str(line.name);
        let name_bytes = line.name.len() as u16;
        self.found.push(FoundKernelSymbol { address: line.address, rank, name, name_bytes, module });
    }

    /// Returns the index of a module. None if there are too many.
    fn module_index(&mut self, name: &str) -> Option<u16> {
        if let Some(index) = self.module_indexes.get(name) {
            return Some(*index);
        }
        let index = u16::try_from(self.modules.len()).ok().filter(|_| self.modules.len() < MAX_MODULES)?;
        self.modules.push(name.to_owned());
        self.module_indexes.insert(name.to_owned(), index);
        Some(index)
    }

    fn build(mut self) -> Result<KernelSymbols, KernelSymbolsError> {
        self.found.sort_by_key(|symbol| (symbol.address, symbol.rank, symbol.name));
        self.found.dedup_by_key(|symbol| symbol.address);
        let Some(first) = self.found.first() else {
            return Err(match self.restricted {
                0 => KernelSymbolsError::Empty { lines: self.lines },
                symbols => KernelSymbolsError::Restricted { symbols },
            });
        };
        let base = first.address;
        let mut symbols = Vec::with_capacity(self.found.len());
        for found in &self.found {
            match u32::try_from(found.address - base) {
                Ok(address) => symbols.push(KernelSymbol {
                    address,
                    name: found.name,
                    module: found.module,
                    name_bytes: found.name_bytes,
                }),
                Err(_) => self.dropped += 1,
            }
        }
        self.names.shrink_to_fit();
        symbols.shrink_to_fit();
        Ok(KernelSymbols { base, symbols, names: self.names, modules: self.modules, dropped: self.dropped })
    }
}
