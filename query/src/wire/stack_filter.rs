//! Wire format of stack filters: the call site, included and excluded frames, and transforms.
//!
//! A transform is a byte of the action, a byte of the kind of pattern, and the text of the pattern.

use athanor_profile::analysis::transform::{
    FramePattern, MAX_TRANSFORMS, StackTransform, StackTransforms, TransformAction,
};
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_bytes, put_texts, put_varint};

use crate::request::frame_filter::{FrameFilter, FramePatterns};
use crate::request::stack_filter::StackFilter;

/// Actions by their byte.
const ACTION_TAGS: [TransformAction; 7] = [
    TransformAction::Focus,
    TransformAction::Ignore,
    TransformAction::Hide,
    TransformAction::Show,
    TransformAction::ShowFrom,
    TransformAction::CollapseRecursion,
    TransformAction::CollapseBelow,
];

pub(super) fn put_stacks(out: &mut Vec<u8>, StackFilter { call_site, frames, transforms }: &StackFilter) {
    put_text_list(out, call_site);
    for FramePatterns { names, regexes } in [frames.included(), frames.excluded()] {
        put_text_list(out, names);
        put_text_list(out, regexes);
    }
    put_varint(out, transforms.transforms().len() as u64);
    transforms.transforms().iter().for_each(|transform| put_transform(out, transform));
}

pub(super) fn read_stacks(reader: &mut CodecReader<'_>) -> Result<StackFilter, CodecError> {
    let call_site = read_text_list(reader)?;
    let mut names = || Ok(FramePatterns { names: read_text_list(reader)?, regexes: read_text_list(reader)? });
    let included = names()?;
    let excluded = names()?;
    // The sender had already compiled the filter.
    let frames =
        FrameFilter::new(included, excluded).map_err(|_| reader.error_here("invalid frame filter"))?;
    let count = reader.read_count()?;
    if count > MAX_TRANSFORMS {
        return Err(reader.error_here("too many transforms"));
    }
    let transforms = (0..count).map(|_| read_transform(reader)).collect::<Result<Vec<_>, _>>()?;
    let transforms = StackTransforms::new(transforms).map_err(|_| reader.error_here("invalid transforms"))?;
    Ok(StackFilter { call_site, frames, transforms })
}

fn put_transform(out: &mut Vec<u8>, StackTransform { action, pattern }: &StackTransform) {
    out.push(match action {
        TransformAction::Focus => 0,
        TransformAction::Ignore => 1,
        TransformAction::Hide => 2,
        TransformAction::Show => 3,
        TransformAction::ShowFrom => 4,
        TransformAction::CollapseRecursion => 5,
        TransformAction::CollapseBelow => 6,
    });
    match pattern {
        FramePattern::AnyFrame => out.push(0),
        FramePattern::ExactName(name) => {
            out.push(1);
            put_bytes(out, name.as_bytes());
        }
        FramePattern::Regex(regex) => {
            out.push(2);
            put_bytes(out, regex.as_bytes());
        }
    }
}

fn read_transform(reader: &mut CodecReader<'_>) -> Result<StackTransform, CodecError> {
    let tag = reader.read_slice(1)?[0];
    let action = ACTION_TAGS.get(usize::from(tag)).copied();
    let action = action.ok_or_else(|| reader.error_here("unknown transform"))?;
    let pattern = match reader.read_slice(1)?[0] {
        0 => FramePattern::AnyFrame,
        1 => FramePattern::ExactName(reader.read_text()?.to_owned()),
        2 => FramePattern::Regex(reader.read_text()?.to_owned()),
        _ => return Err(reader.error_here("unknown kind of pattern")),
    };
    Ok(StackTransform { action, pattern })
}

pub(super) fn put_text_list(out: &mut Vec<u8>, list: &[String]) {
    put_texts(out, list.iter().map(String::as_str));
}

pub(super) fn read_text_list(reader: &mut CodecReader<'_>) -> Result<Vec<String>, CodecError> {
    reader.read_texts()?.map(|text| text.map(str::to_owned)).collect()
}
