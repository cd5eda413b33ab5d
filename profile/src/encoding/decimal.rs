//! Exact decimal numbers: 0.1 is a tenth.
//!
//! Numbers in JSON are decimal. As floating point, their sums are inexact, and a Unix time in seconds loses
//! digits below a microsecond.

use std::fmt;

/// Digits kept behind the decimal point.
const FRACTION_DIGITS: u32 = 18;
const ONE_SCALED: i128 = 10i128.pow(FRACTION_DIGITS);
/// Limit of the magnitude, beyond the range of 64-bit numbers.
const MAX_SCALED: i128 = ONE_SCALED << 64;

/// Decimal number with at most 64 bits before the point, rounded to 18 digits behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decimal(i128);

impl Decimal {
    /// Parses a JSON number such as `-1.5e3`. Returns `None` if the text is invalid or the number too large.
    pub(crate) fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let mut digits = whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0'));
        // Number of digits to keep. Missing digits are zeros.
        let kept = i64::from(exponent) + i64::from(FRACTION_DIGITS) + whole.len() as i64;
        let mut value = 0i128;
        for digit in digits.by_ref().take(usize::try_from(kept).unwrap_or_default()) {
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        // The first dropped digit rounds the others.
        let up = kept >= 0 && digits.next().is_some_and(|digit| digit >= 5);
        value = value.checked_add(i128::from(up))?;
        let written = (whole.len() + fraction.len()) as i64;
        for _ in written..kept {
            if value == 0 {
                break;
            }
            value = value.checked_mul(10)?;
        }
        let value = if mantissa.starts_with('-') { -value } else { value };
        (-MAX_SCALED..=MAX_SCALED).contains(&value).then_some(Decimal(value))
    }

    /// Returns the sum, or `None` on overflow.
    pub(crate) fn checked_add(self, other: Decimal) -> Option<Decimal> {
        self.0.checked_add(other.0).map(Decimal)
    }

    /// Returns the difference, or `None` on overflow.
    pub(crate) fn checked_sub(self, other: Decimal) -> Option<Decimal> {
        self.0.checked_sub(other.0).map(Decimal)
    }

    /// Returns the number in units of 10^-`power`: with 9, seconds become nanoseconds. Half a unit is rounded
    /// away from zero. Returns `None` if the result exceeds 63 bits.
    pub(crate) fn to_units(self, power: u32) -> Option<i64> {
        let unit = 10i128.pow(FRACTION_DIGITS - power);
        let whole = self.0 / unit;
        let rest = self.0 % unit;
        let up = if rest.abs() * 2 >= unit { rest.signum() } else { 0 };
        i64::try_from(whole + up).ok()
    }
}

impl From<i64> for Decimal {
    fn from(whole: i64) -> Self {
        Decimal(i128::from(whole) * ONE_SCALED)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let whole = self.0.unsigned_abs() / ONE_SCALED as u128;
        let rest = self.0.unsigned_abs() % ONE_SCALED as u128;
        let text = format!("{sign}{whole}.{rest:018}");
        out.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Option<String> {
        Decimal::parse(text).map(|number| number.to_string())
    }

    #[test]
    fn numbers_are_kept_exactly() {
        for (text, expected) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("12", "12"),
            ("0.1", "0.1"),
            ("-1.50", "-1.5"),
            ("1700000000.123456789012345678", "1700000000.123456789012345678"),
            ("1.5e3", "1500"),
            ("1500E-3", "1.5"),
            ("0.0000000000000000005", "0.000000000000000001"),
            ("0.00000000000000000049999", "0"),
            ("1e-400", "0"),
            ("0e999999999", "0"),
            ("5e-19", "0.000000000000000001"),
            ("9e-20", "0"),
            ("00012", "12"),
            ("18446744073709551616", "18446744073709551616"),
            ("9223372036854775808000e-3", "9223372036854775808"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "-",
            ".5",
            "1e",
            "1e1.0",
            "NaN",
            "--1",
            "1 ",
            "0x1",
            "1e99999999999",
            "18446744073709551617",
            "1e20",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn units_are_rounded_once() {
        let units = |text: &str, power| Decimal::parse(text).unwrap().to_units(power);
        assert_eq!(units("0.1", 9), Some(100_000_000));
        assert_eq!((units("0.5", 0), units("-0.5", 0), units("0.4999999", 0)), (Some(1), Some(-1), Some(0)));
        assert_eq!(units("1.0000000004999", 9), Some(1_000_000_000));
        assert_eq!(
            (units("9223372036854775807.4", 0), units("9223372036854775807.5", 0)),
            (Some(i64::MAX), None)
        );
        assert_eq!((units("-9223372036854775808", 0), units("9223372037", 9)), (Some(i64::MIN), None));
        // A third is no decimal number: three of them are one all the same.
        let third = Decimal::parse("0.3333333333333333").unwrap();
        let sum = third.checked_add(third).unwrap().checked_add(third).unwrap();
        assert_eq!(
            (sum.to_units(9), sum.checked_sub(third).unwrap().to_units(9)),
            (Some(1_000_000_000), Some(666_666_667))
        );
        assert_eq!(Decimal::from(-7).to_units(0), Some(-7));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(whole: i64, fraction in 0u64..1_000_000_000) {
            let text = format!("{whole}.{fraction:09}");
            let number = Decimal::parse(&text).unwrap();
            prop_assert_eq!(Decimal::parse(&number.to_string()), Some(number));
            let shift = |power: i32| Decimal::parse(&format!("{text}e{power}"));
            prop_assert_eq!(shift(-9).and_then(|number| number.to_units(9)), number.to_units(0));
        }

        #[test]
        fn any_text_is_a_number_or_not(text in "[-+0-9.eE]{0,40}|\\PC{0,10}") {
            let _ = Decimal::parse(&text).map(|number| (number.to_units(0), number.to_units(9)));
        }

        /// What floating point says of a number is as near as it can be.
        #[test]
        fn numbers_are_what_they_are_elsewhere(mantissa in -1_000_000i64..1_000_000, power in -12i32..12) {
            let text = format!("{mantissa}e{power}");
            let float: f64 = text.parse().unwrap();
            let own: f64 = Decimal::parse(&text).unwrap().to_string().parse().unwrap();
            prop_assert_eq!(own, float);
        }
    }
}
