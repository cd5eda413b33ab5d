//! Checked sums of sample values. A sum past 63 bits is an error, and is never wrapped.

use athanor_profile::call_tree::tree::MAX_MAGNITUDE;

use crate::request::profile_query::ProfileQueryError;

/// Values of stacks, as a tree or with all details.
pub(crate) const STACK_VALUES: &str = "the values of all stacks";
/// Values of the profiles of one point.
pub(crate) const POINT_VALUES: &str = "the values of a point";
/// Values of the rows of one profile.
pub(crate) const PROFILE_VALUES: &str = "the values of a profile";

/// Adds a value to a sum of some kind of values.
pub(crate) fn add_checked(sum: &mut i64, value: i64, what: &'static str) -> Result<(), ProfileQueryError> {
    *sum = sum.checked_add(value).ok_or(ProfileQueryError::SumTooLarge { what })?;
    Ok(())
}

/// Checks that no sum over some of the values passes 63 bits.
pub(crate) fn check_magnitude(values: &[i64]) -> Result<(), ProfileQueryError> {
    let magnitude: u128 = values.iter().map(|value| u128::from(value.unsigned_abs())).sum();
    check_stack_sum(u64::try_from(magnitude).unwrap_or(u64::MAX))
}

/// Checks a sum of absolute values of stacks.
pub(crate) fn check_stack_sum(magnitude: u64) -> Result<(), ProfileQueryError> {
    match magnitude > MAX_MAGNITUDE {
        true => Err(ProfileQueryError::SumTooLarge { what: STACK_VALUES }),
        false => Ok(()),
    }
}
