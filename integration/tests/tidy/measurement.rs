//! Result of a measure: a number, and the places that make it up.

use std::fmt;

/// Value of a measure with the places to improve.
pub struct Measurement {
    /// Value in tenths of the measure's unit.
    pub tenths: u64,
    /// Places in any order.
    pub places: Vec<Place>,
}

/// Place in the repository that a measure counts.
pub struct Place {
    pub path: String,
    /// Line, counted from 1; 0 if the whole file or folder is meant.
    pub line: usize,
    /// Rank of the place: a greater weight is worse.
    pub weight: usize,
    /// Finding at this place.
    pub detail: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(formatter, "{}: {}", self.path, self.detail)
        } else {
            write!(formatter, "{}:{}: {}", self.path, self.line, self.detail)
        }
    }
}

impl Measurement {
    /// Returns the number of places.
    pub fn count_of(places: Vec<Place>) -> Self {
        Self { tenths: 10 * places.len() as u64, places }
    }
    /// Returns the number of places per `scale` of a whole, where 100 gives percent.
    pub fn share_of(places: Vec<Place>, whole: usize, scale: usize) -> Self {
        Self { tenths: share_tenths(places.len(), whole, scale), places }
    }
    /// Returns the greatest weight.
    pub fn greatest_of(places: Vec<Place>) -> Self {
        let greatest = places.iter().map(|place| place.weight).max().unwrap_or_default();
        Self { tenths: 10 * greatest as u64, places }
    }
}

/// Returns `count` per `scale` of a whole in tenths, rounded; 0 of nothing.
pub fn share_tenths(count: usize, whole: usize, scale: usize) -> u64 {
    let scaled = 10 * count * scale;
    (scaled + whole / 2).checked_div(whole).unwrap_or_default() as u64
}

#[cfg(test)]
mod tests {
    use super::share_tenths;

    #[test]
    fn shares_are_rounded_to_tenths() {
        assert_eq!(share_tenths(1, 3, 100), 333);
        assert_eq!(share_tenths(2, 3, 100), 667);
        assert_eq!(share_tenths(5, 10_000, 1000), 5);
        assert_eq!(share_tenths(0, 0, 100), 0);
    }
}
