//! Readable names of functions. Symbols are hostile: length, output and depth are bounded.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

/// Maximum bytes of a name. Longer ones are cut and end in an ellipsis.
pub const MAX_NAME_BYTES: usize = 4096;
/// Maximum bytes of a symbol that is demangled.
const MAX_MANGLED_BYTES: usize = 4096;
/// Maximum depth of nested C++ types.
const MAX_RECURSION: u32 = 96;
/// Maximum number of pieces of one demangled name.
const MAX_PIECES: usize = 16_384;
const ELLIPSIS: &str = "…";

/// Returns the name of a symbol for display: demangled if it is a Rust or C++ name, without hash, at most
/// [`MAX_NAME_BYTES`].
pub fn readable_name(symbol: &str) -> String {
    demangle(symbol).unwrap_or_else(|| cut_name(symbol))
}

/// Cuts a name to [`MAX_NAME_BYTES`].
pub(super) fn cut_name(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let end = name.floor_char_boundary(MAX_NAME_BYTES - ELLIPSIS.len());
    format!("{}{ELLIPSIS}", &name[..end])
}

/// Returns the name of a Go function as Go shows it, without the types of a generic function: `main.sum[...]`.
pub(super) fn short_go_name(name: &str) -> String {
    let short = name.find('[').zip(name.rfind(']')).and_then(|(start, end)| {
        let before = name.get(..start)?;
        let after = name.get(end.checked_add(1)?..).filter(|_| start < end)?;
        Some(format!("{before}[...]{after}"))
    });
    cut_name(&short.unwrap_or_else(|| name.to_owned()))
}

fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > MAX_MANGLED_BYTES {
        return None;
    }
    let (mangled, suffix) = split_clone_suffix(symbol);
    let name = demangle_rust(mangled).or_else(|| demangle_cpp(mangled))?;
    if name.is_empty() { None } else { Some(cut_name(&(name + suffix))) }
}

/// Splits off what compilers append to parts and clones of a function: `.cold`, `.part.0`, `.llvm.123`.
fn split_clone_suffix(symbol: &str) -> (&str, &str) {
    let marks = [".cold", ".part.", ".isra.", ".constprop.", ".llvm.", ".lto_priv."];
    let first = marks.iter().filter_map(|mark| symbol.find(mark)).min();
    symbol.split_at(first.unwrap_or(symbol.len()))
}

fn demangle_rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut text = BoundedText::default();
    // The alternate form leaves out the hash.
    finish(write!(text, "{name:#}"), text)
}

fn demangle_cpp(symbol: &str) -> Option<String> {
    if !(symbol.starts_with("_Z") || symbol.starts_with("__Z")) {
        return None;
    }
    let parsing = ParseOptions::default().recursion_limit(MAX_RECURSION);
    let name = cpp_demangle::Symbol::new_with_options(symbol, &parsing).ok()?;
    let options = DemangleOptions::new().recursion_limit(MAX_RECURSION);
    let mut text = BoundedText::default();
    finish(name.structured_demangle(&mut text, &options), text)
}

/// Returns the text, with an ellipsis if it was cut. None if the name could not be written for another reason.
fn finish(result: fmt::Result, text: BoundedText) -> Option<String> {
    match result {
        Ok(()) => Some(text.text),
        Err(_) if text.is_full => Some(text.text + ELLIPSIS),
        Err(_) => None,
    }
}

/// Text that refuses what exceeds the bound, so that a short symbol cannot become a long name.
#[derive(Default)]
struct BoundedText {
    text: String,
    pieces: usize,
    is_full: bool,
}

impl Write for BoundedText {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.pieces += 1;
        let limit = MAX_NAME_BYTES - ELLIPSIS.len();
        let free = limit.saturating_sub(self.text.len());
        self.is_full |= piece.len() > free || self.pieces > MAX_PIECES;
        if self.is_full {
            self.text.push_str(&piece[..piece.floor_char_boundary(free)]);
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        Ok(())
    }
}
