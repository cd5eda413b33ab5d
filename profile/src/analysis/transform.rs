//! Changes of stacks in the words of pprof: focus, ignore, hide, show, show_from and collapse.
//!
//! Each change is a function of one stack. So it commutes with merging: sources rewrite their own stacks, and a merge of
//! the results equals the rewritten merge.
//!
//! * `definition`: actions and patterns, and their form as options of a command or a URL.
//! * `matcher`: compiled patterns, and the frames of a dictionary that they match.
//! * `rewriter`: rewritten stacks of one dictionary.
//! * `profile`: rewritten profiles.

mod definition;
mod matcher;
mod profile;
mod rewriter;
#[cfg(test)]
mod tests;

pub use definition::{
    FramePattern, MAX_TRANSFORM_BYTES, MAX_TRANSFORMS, StackTransform, TRANSFORM_OPTIONS, TransformAction,
    TransformError,
};
pub use matcher::StackTransforms;
pub use rewriter::StackRewriter;
