//! Filter of functions by name.

use athanor_chassis::Status;
use athanor_profile::labeling::pattern::{self, PatternError};
use athanor_proto::athanor::v1::FunctionFilter;
use athanor_proto::athanor::v1::function_filter::Pattern;
use regex::Regex;

use crate::validate::invalid_argument;

/// Maximum number of bytes of a filter.
const MAX_FILTER_BYTES: usize = 64 << 10;

/// Compiled filter. The default matches every function.
#[derive(Clone, Debug, Default)]
pub(super) enum FunctionMatcher {
    #[default]
    Every,
    Substring(String),
    Regex(Regex),
}

impl FunctionMatcher {
    pub(super) fn parse(filter: Option<FunctionFilter>) -> Result<FunctionMatcher, Status> {
        let Some(pattern) = filter.and_then(|filter| filter.pattern) else {
            return Ok(FunctionMatcher::Every);
        };
        let (Pattern::Substring(text) | Pattern::Regex(text)) = &pattern;
        if text.len() > MAX_FILTER_BYTES {
            return Err(invalid_argument(format!(
                "filter has {} bytes, the limit is {MAX_FILTER_BYTES}; write a shorter one",
                text.len()
            )));
        }
        match pattern {
            Pattern::Substring(text) => Ok(FunctionMatcher::Substring(text)),
            Pattern::Regex(text) => match pattern::compile_partial_match(&text) {
                Ok(regex) => Ok(FunctionMatcher::Regex(regex)),
                Err(PatternError { position, why }) => {
                    let place = pattern::position_text(position);
                    Err(invalid_argument(format!("filter: regular expression {text:?}{place}: {why}")))
                }
            },
        }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            FunctionMatcher::Every => true,
            FunctionMatcher::Substring(text) => name.contains(text.as_str()),
            FunctionMatcher::Regex(regex) => regex.is_match(name),
        }
    }
}
