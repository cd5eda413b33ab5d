//! Transforms of stacks on the wire.

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::analysis::transform::{
    FramePattern, MAX_TRANSFORMS, StackTransform, StackTransforms, TransformAction, TransformError,
};
use athanor_proto::athanor::v1::transform::Action;
use athanor_proto::athanor::v1::{FrameMatch, Transform, frame_match};

use crate::execute::executor::QueryExecutor;
use crate::validate::invalid_argument;

/// Parses the transforms of a query.
pub(super) async fn parse_transforms(
    executor: &QueryExecutor,
    transforms: Vec<Transform>,
) -> Result<StackTransforms, Status> {
    if transforms.len() > MAX_TRANSFORMS {
        return Err(refused_transforms(&TransformError::TooMany { seen: transforms.len() }));
    }
    let numbered = (1..).zip(transforms);
    let transforms: Vec<StackTransform> =
        numbered.map(|(number, transform)| parse_transform(number, transform)).collect::<Result<_, _>>()?;
    compile_transforms(executor, transforms).await
}

/// Compiles transforms. Regular expressions are compiled on the pool, because each may take a while.
pub(crate) async fn compile_transforms(
    executor: &QueryExecutor,
    transforms: Vec<StackTransform>,
) -> Result<StackTransforms, Status> {
    let is_regex = |transform: &StackTransform| matches!(transform.pattern, FramePattern::Regex(_));
    let compiled = match transforms.iter().any(is_regex) {
        true => executor.parse_on_pool(move || StackTransforms::new(transforms)).await?,
        false => StackTransforms::new(transforms),
    };
    compiled.map_err(|error| refused_transforms(&error))
}

/// Returns the status of an invalid list of transforms.
pub(crate) fn refused_transforms(error: &TransformError) -> Status {
    Status::new(ErrorCode::Invalid, error.to_string())
}

fn parse_transform(number: usize, transform: Transform) -> Result<StackTransform, Status> {
    let Some(action) = transform.action else {
        return Err(invalid_argument(format!(
            "transform {number} has no action; set focus, ignore, hide, show, show_from, collapse_recursion or collapse_below"
        )));
    };
    let (action, frames) = match action {
        Action::Focus(frames) => (TransformAction::Focus, frames),
        Action::Ignore(frames) => (TransformAction::Ignore, frames),
        Action::Hide(frames) => (TransformAction::Hide, frames),
        Action::Show(frames) => (TransformAction::Show, frames),
        Action::ShowFrom(frames) => (TransformAction::ShowFrom, frames),
        Action::CollapseRecursion(frames) => (TransformAction::CollapseRecursion, frames),
        Action::CollapseBelow(frames) => (TransformAction::CollapseBelow, frames),
    };
    Ok(StackTransform { action, pattern: parse_pattern(frames) })
}

fn parse_pattern(FrameMatch { pattern }: FrameMatch) -> FramePattern {
    match pattern {
        None => FramePattern::AnyFrame,
        Some(frame_match::Pattern::Name(name)) => FramePattern::ExactName(name),
        Some(frame_match::Pattern::Regex(regex)) => FramePattern::Regex(regex),
    }
}
