//! Tests of names.

mod demangling;
mod elf_files;
mod kernel;
mod symbolizing;
