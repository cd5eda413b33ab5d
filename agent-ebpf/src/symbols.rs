//! Names of kernel and user functions.
//!
//! ```text
//!  /proc/kallsyms ─► KernelSymbols ──────────────┐
//!  ELF symbol tables ─► SymbolTable ─┐           ├─► Symbolizer (bounded cache) ─► FrameName
//!  Go function table ────────────────┴─ demangle ┘
//! ```
//!
//! * `window_reader`: small reads of files.
//! * `elf_symbols`: compact table of a file's symbols. Names stay in the file until they are looked up.
//! * `kernel_symbols`: names of the kernel and its modules.
//! * `demangle`: Rust and C++ names, and the bound of all names.
//! * `symbolizer`: the cache.

mod demangle;
mod elf_symbols;
mod kernel_symbols;
mod lru;
mod symbolizer;
pub(crate) mod window_reader;

pub use demangle::{MAX_NAME_BYTES, readable_name};
pub use elf_symbols::{FoundSymbol, SymbolFiles, SymbolTable};
pub use kernel_symbols::{KernelSymbolFile, KernelSymbols, KernelSymbolsError};
pub use symbolizer::{SymbolSource, Symbolizer, debug_file_path};

#[cfg(test)]
mod tests;
