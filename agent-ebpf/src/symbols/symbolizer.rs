//! Names of frames, cached within a bound of memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::demangle::{cut_name, readable_name, short_go_name};
use super::elf_symbols::{SymbolFiles, SymbolTable};
use super::kernel_symbols::{KernelSymbolFile, KernelSymbols, KernelSymbolsError};
use super::lru::LruCache;
use crate::elf::ElfFile;
use crate::frame::FileId;
use crate::go_pclntab::GoFunctionTable;
use crate::window::FrameName;

/// Minimum time between two readings of the kernel's symbols, if modules changed.
const MODULE_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two readings of the kernel's symbols, if an address had no name.
const UNKNOWN_REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum bytes of the list of modules that are read.
const MAX_MODULES_BYTES: u64 = 1 << 20;
/// Bytes of a symbol in a table.
const BYTES_PER_SYMBOL: usize = 8;

/// Object file to look names up in.
#[derive(Clone, Debug)]
pub struct SymbolSource {
    /// File that runs.
    pub object: Arc<ElfFile>,
    /// File with the symbols that were stripped from it.
    pub debug: Option<Arc<ElfFile>>,
}

impl SymbolSource {
    fn files(&self) -> SymbolFiles<'_> {
        SymbolFiles { object: &self.object, debug: self.debug.as_deref() }
    }
}

/// Returns the path of the file with the symbols of a build id: `FOLDER/.build-id/ab/cdef.debug`. None if the build id
/// is not hex.
pub fn debug_file_path(folder: &Path, build_id: &str) -> Option<PathBuf> {
    let is_hex = build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (first, rest) = build_id.split_at_checked(2).filter(|_| is_hex)?;
    Some(folder.join(".build-id").join(first).join(format!("{rest}.debug")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CacheKey {
    /// Tables of a file.
    File(FileId),
    /// Name of an address.
    Address(FileId, u64),
    /// Name of the function with a start address.
    Function(FileId, u64),
    /// Name of the function of the kernel with a start address.
    Kernel(u64),
}

enum CacheValue {
    /// Boxed: names are many and small.
    Tables(Box<FileTables>),
    /// Name. None if the address has none.
    Name(Option<FrameName>),
}

/// Tables of a file. The symbol table is read when the Go table has no name for an address.
struct FileTables {
    go: Option<GoFunctionTable>,
    symbols: Option<SymbolTable>,
}

/// Function at an address.
struct FoundFunction {
    start: u64,
    /// Name as in the file.
    symbol: String,
    is_go: bool,
}

/// Looks up names of frames. Addresses that were looked up before, and tables of files, stay in a bounded cache.
pub struct Symbolizer {
    cache: LruCache<CacheKey, CacheValue>,
    max_bytes: usize,
    kernel: Option<KernelSymbols>,
    modules_hash: u64,
    kernel_read_at: Option<Duration>,
    has_unknown_kernel_address: bool,
    dropped_symbols: u64,
    no_module: Arc<str>,
}

impl Symbolizer {
    /// Creates a symbolizer that holds at most `max_bytes`. It reads no kernel symbols until
    /// [`refresh_kernel`](Self::refresh_kernel).
    pub fn new(max_bytes: usize) -> Self {
        Self {
            cache: LruCache::new(max_bytes),
            max_bytes,
            kernel: None,
            modules_hash: 0,
            kernel_read_at: None,
            has_unknown_kernel_address: false,
            dropped_symbols: 0,
            no_module: "".into(),
        }
    }

    /// Returns the name of an address of a file. `open` is called if the address is new. None if the address has no
    /// name or the file cannot be opened.
    pub fn name_of(
        &mut self,
        file: FileId,
        open: impl FnOnce() -> Option<SymbolSource>,
        address: u64,
    ) -> Option<FrameName> {
        if let Some(CacheValue::Name(name)) = self.cache.get(&CacheKey::Address(file, address)) {
            return name.clone();
        }
        let source = open()?;
        let name = self.find_function(file, &source, address).map(|found| self.function_name(file, found));
        // The texts may outlive the entry of the function, so they count here, too.
        let bytes = name.as_ref().map_or(0, FrameName::text_bytes);
        self.cache.insert(CacheKey::Address(file, address), CacheValue::Name(name.clone()), bytes);
        name
    }

    /// Returns whether an address was looked up and is still known, with a name or without.
    pub fn is_known(&self, file: FileId, address: u64) -> bool {
        self.cache.contains(&CacheKey::Address(file, address))
    }

    fn find_function(&mut self, file: FileId, source: &SymbolSource, address: u64) -> Option<FoundFunction> {
        let key = CacheKey::File(file);
        let known = match self.cache.remove(&key) {
            Some(CacheValue::Tables(tables)) => Some(tables),
            _ => None,
        };
        let mut tables = known
            .unwrap_or_else(|| Box::new(FileTables { go: find_go_table(&source.object), symbols: None }));
        let go_function = tables.go.and_then(|table| table.function_at(&source.object, address));
        let found = match go_function {
            Some(function) => {
                Some(FoundFunction { start: function.start, symbol: function.name, is_go: true })
            }
            None => {
                let found = self.symbols_of(&mut tables, source).find(source.files(), address);
                found.map(|found| FoundFunction { start: found.start, symbol: found.name, is_go: false })
            }
        };
        let bytes = size_of::<FileTables>() + tables.symbols.as_ref().map_or(0, SymbolTable::memory);
        self.cache.insert(key, CacheValue::Tables(tables), bytes);
        found
    }

    fn symbols_of<'a>(&mut self, tables: &'a mut FileTables, source: &SymbolSource) -> &'a SymbolTable {
        let max_symbols = self.cache.max_bytes() / 2 / BYTES_PER_SYMBOL;
        tables.symbols.get_or_insert_with(|| {
            let symbols = SymbolTable::read(source.files(), max_symbols);
            self.dropped_symbols += symbols.dropped();
            symbols
        })
    }

    /// Returns the name of a function. All its addresses share the texts.
    fn function_name(&mut self, file: FileId, found: FoundFunction) -> FrameName {
        let key = CacheKey::Function(file, found.start);
        if let Some(CacheValue::Name(Some(name))) = self.cache.get(&key) {
            return name.clone();
        }
        let function = if found.is_go { short_go_name(&found.symbol) } else { readable_name(&found.symbol) };
        let name = frame_name(function, &found.symbol, Arc::clone(&self.no_module));
        self.cache.insert(key, CacheValue::Name(Some(name.clone())), name.text_bytes());
        name
    }

    /// Returns the name of an address of the kernel, with `[kernel]` or its module.
    pub fn kernel_name(&mut self, address: u64) -> Option<FrameName> {
        let function = self.kernel.as_ref().and_then(|kernel| kernel.function_at(address));
        let Some(function) = function else {
            self.has_unknown_kernel_address = true;
            return None;
        };
        let key = CacheKey::Kernel(function.start);
        if let Some(CacheValue::Name(Some(name))) = self.cache.get(&key) {
            return Some(name.clone());
        }
        let name = frame_name(readable_name(function.name), function.name, function.module.into());
        self.cache.insert(key, CacheValue::Name(Some(name.clone())), name.text_bytes());
        Some(name)
    }

    /// Reads the symbols of the kernel at the first call. Reads them another time if modules changed, at most once a
    /// minute, or if an address had no name, at most every ten minutes. `now` is a time of a monotonic clock.
    ///
    /// # Errors
    ///
    /// Fails if the symbols cannot be read, are restricted or too large. Earlier ones stay.
    pub fn refresh_kernel(
        &mut self,
        proc_folder: &Path,
        kallsyms: &KernelSymbolFile,
        now: Duration,
    ) -> Result<(), KernelSymbolsError> {
        let modules_hash = hash_modules(&proc_folder.join("modules"));
        if !self.is_kernel_refresh_due(modules_hash, now) {
            return Ok(());
        }
        self.kernel_read_at = Some(now);
        self.modules_hash = modules_hash;
        self.has_unknown_kernel_address = false;
        let kernel = KernelSymbols::read(kallsyms)?;
        self.set_kernel(kernel)
    }

    /// Takes these symbols of the kernel.
    ///
    /// # Errors
    ///
    /// Fails if they take more than half of the memory. Earlier ones stay.
    pub fn set_kernel(&mut self, kernel: KernelSymbols) -> Result<(), KernelSymbolsError> {
        let bytes = kernel.memory();
        let limit = self.max_bytes / 2;
        if bytes > limit {
            return Err(KernelSymbolsError::TooLarge { bytes, limit });
        }
        self.cache.retain(|key| !matches!(key, CacheKey::Kernel(_)));
        self.cache.set_max_bytes(self.max_bytes - bytes);
        self.dropped_symbols += kernel.dropped();
        self.kernel = Some(kernel);
        Ok(())
    }

    fn is_kernel_refresh_due(&self, modules_hash: u64, now: Duration) -> bool {
        let Some(read_at) = self.kernel_read_at else { return true };
        let age = now.saturating_sub(read_at);
        let has_new_modules = modules_hash != self.modules_hash && age >= MODULE_REFRESH_INTERVAL;
        has_new_modules || self.has_unknown_kernel_address && age >= UNKNOWN_REFRESH_INTERVAL
    }

    /// Forgets a file whose number is given to another one.
    pub fn forget_file(&mut self, file: FileId) {
        self.cache.retain(|key| match key {
            CacheKey::File(known) | CacheKey::Address(known, _) | CacheKey::Function(known, _) => {
                *known != file
            }
            CacheKey::Kernel(_) => true,
        });
    }

    /// Returns the number of evicted tables and names.
    pub fn evictions(&self) -> u64 {
        self.cache.evictions()
    }

    /// Returns the number of symbols that were left out because a table reached its bound.
    pub fn dropped_symbols(&self) -> u64 {
        self.dropped_symbols
    }

    /// Returns the bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.cache.bytes() + self.kernel.as_ref().map_or(0, KernelSymbols::memory)
    }
}

fn find_go_table(file: &ElfFile) -> Option<GoFunctionTable> {
    GoFunctionTable::find(file)
        .inspect_err(|error| tracing::debug!(%error, "failed to read go function table"))
        .ok()
        .flatten()
}

fn frame_name(function: String, symbol: &str, module: Arc<str>) -> FrameName {
    let system_name = (function != symbol).then(|| cut_name(symbol).into());
    FrameName { function: function.into(), system_name, module }
}

/// Hashes names and addresses of the loaded modules. 0 if they cannot be read.
fn hash_modules(path: &Path) -> u64 {
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_MODULES_BYTES).read_to_end(&mut text));
    if read.is_err() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        fields.next().hash(&mut hasher);
        fields.nth(4).hash(&mut hasher);
    }
    hasher.finish()
}
