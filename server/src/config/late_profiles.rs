//! Check that no profile is accepted whose earlier copy may have expired.
//!
//! Downsampled tiers hold sums and no IDs. A copy of a profile is recognized by the ID of its raw row. If the raw row
//! expired and a tier still holds it, a late copy counts again [INV-23].

use std::time::Duration;

use athanor_chassis::TenantLimits;
use athanor_chassis::units::format_duration;

/// Setting that the check concerns, in `limits`.
pub(crate) const REJECT_OLDER_THAN_SETTING: &str = "reject_older_than";

/// Time between the oldest accepted profile and the expiration of its raw row. Late rows wait up to a day for the
/// merge that compares their IDs, and clocks differ by up to an hour.
const MIN_RAW_SURPLUS: Duration = Duration::from_secs(25 * 3600);

/// Returns why a copy of an expired profile could count again with these limits of a tenant. `retention` is the
/// retention of raw rows without a limit of their own. A period of zero is for ever.
pub fn find_late_profile_error(limits: &TenantLimits, retention: Duration) -> Option<(&'static str, String)> {
    let raw = limits.retention_period.unwrap_or(retention);
    let tiers = [limits.retention_period_5m, limits.retention_period_1h, limits.retention_period_1d];
    let is_longer = |tier: Duration| tier.is_zero() || tier > raw;
    if raw.is_zero() || !tiers.into_iter().flatten().any(is_longer) {
        return None;
    }
    let oldest = limits.reject_older_than;
    let longest = raw.saturating_sub(MIN_RAW_SURPLUS);
    if !oldest.is_zero() && oldest <= longest {
        return None;
    }
    let accepted = match oldest.is_zero() {
        true => "profiles of any age are accepted".to_owned(),
        false => format!("profiles of {} are accepted", format_duration(oldest)),
    };
    let raw_text = format_duration(raw);
    let way_out = match longest.is_zero() {
        true => format!("keep single profiles for more than {}", format_duration(MIN_RAW_SURPLUS)),
        false => format!("write at most {}, or keep single profiles longer", format_duration(longest)),
    };
    let reason = format!(
        "{accepted}, single profiles expire after {raw_text} and a tier is kept longer, so a late copy would count \
         twice; {way_out}"
    );
    Some((REJECT_OLDER_THAN_SETTING, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn limits(raw: Option<u32>, tier: Option<u32>, oldest: u32) -> TenantLimits {
        TenantLimits {
            retention_period: raw.map(|hours| HOUR * hours),
            retention_period_1h: tier.map(|hours| HOUR * hours),
            reject_older_than: HOUR * oldest,
            ..TenantLimits::default()
        }
    }

    #[test]
    fn late_profiles_are_refused_only_if_tiers_outlive_their_ids() {
        let error = |raw, tier, oldest| find_late_profile_error(&limits(raw, tier, oldest), HOUR * 48);
        for (raw, tier, oldest) in [
            (None, None, 0),
            (None, Some(48), 0),
            (Some(0), Some(0), 0),
            (Some(0), Some(9), 0),
            (None, Some(49), 23),
            (Some(26), Some(0), 1),
        ] {
            assert_eq!(error(raw, tier, oldest), None, "{raw:?} {tier:?} {oldest}");
        }
        let (setting, any_age) = error(None, Some(49), 0).unwrap();
        assert_eq!(setting, "reject_older_than");
        assert_eq!(
            any_age,
            "profiles of any age are accepted, single profiles expire after 2d and a tier is kept longer, so a late \
             copy would count twice; write at most 23h, or keep single profiles longer"
        );
        let (_, too_old) = error(Some(26), Some(0), 2).unwrap();
        assert!(
            too_old.starts_with("profiles of 2h are accepted, single profiles expire after 1d2h"),
            "{too_old}"
        );
        let (_, too_short) = error(Some(25), Some(26), 1).unwrap();
        assert!(too_short.ends_with("keep single profiles for more than 1d1h"), "{too_short}");
    }
}
