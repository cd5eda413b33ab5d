//! Sums of the profiles of one tenant in a head.
//!
//! The first query after a profile adds up its rows, so that writes do not. Later queries need no rows for points.

use athanor_profile::encoding::codec::CodecError;

use crate::head_store::rows;

/// Sums of the first profiles of a tenant.
#[derive(Debug, Default)]
pub struct RowSums {
    /// Sum of each profile's values, modulo 2^64.
    totals: Vec<i64>,
    /// Sum of the absolute values of all rows, saturated.
    magnitude: u64,
}

/// Sums of the profiles after those of [`RowSums`], which are not part of it yet.
#[derive(Debug)]
pub struct NextRowSums {
    /// Number of profiles that had a sum before.
    first: usize,
    sums: RowSums,
}

impl RowSums {
    /// Begins sums of the next profiles, which need no lock of the ones so far.
    pub fn begin_next(&self) -> NextRowSums {
        let sums = RowSums { totals: Vec::new(), magnitude: self.magnitude };
        NextRowSums { first: self.totals.len(), sums }
    }

    /// Adds the profiles that others have not added meanwhile.
    pub fn extend(&mut self, next: NextRowSums) {
        let NextRowSums { first, sums } = next;
        if let Some(new) = sums.totals.get(self.totals.len() - first..).filter(|new| !new.is_empty()) {
            self.totals.extend_from_slice(new);
            self.magnitude = sums.magnitude;
        }
    }

    /// Returns the sum of the absolute values of all rows, saturated.
    pub fn magnitude(&self) -> u64 {
        self.magnitude
    }

    /// Returns the sums of the first profiles, each of which has one. Returns `None` if a sum over all profiles may pass 63
    /// bits, because the sum of a profile may then have wrapped.
    pub fn totals(&self, profiles: usize) -> Option<&[i64]> {
        i64::try_from(self.magnitude).is_ok().then(|| &self.totals[..profiles])
    }
}

impl NextRowSums {
    /// Returns the number of profiles with a sum.
    pub fn end(&self) -> usize {
        self.first + self.sums.totals.len()
    }

    /// Adds the packed rows of the next profile.
    pub fn push(&mut self, packed: &[u8]) -> Result<(), CodecError> {
        let mut total = 0i64;
        let mut magnitude = self.sums.magnitude;
        rows::for_each_row(packed, |row| {
            total = total.wrapping_add(row.value);
            magnitude = magnitude.saturating_add(row.value.unsigned_abs());
        })?;
        self.sums.totals.push(total);
        self.sums.magnitude = magnitude;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use athanor_profile::SampleTimestamps;

    use super::*;
    use crate::head_store::rows::{InputRow, pack_rows};

    fn packed(values: &[i64]) -> Vec<u8> {
        let row = |(stack, &value)| InputRow { stack, place: 0, span: 0, trace: 0, value };
        let mut rows: Vec<InputRow> = (0..).zip(values).map(row).collect();
        let mut out = Vec::new();
        pack_rows(&mut rows, &SampleTimestamps::default(), &mut out);
        out
    }

    fn extend(sums: &mut RowSums, mut next: NextRowSums, profiles: &[&[i64]]) {
        for values in profiles {
            next.push(&packed(values)).unwrap();
        }
        sums.extend(next);
    }

    #[test]
    fn two_readers_at_once_add_each_profile_once() {
        let mut sums = RowSums::default();
        let short = sums.begin_next();
        let long = sums.begin_next();
        let late = sums.begin_next();
        extend(&mut sums, short, &[&[1, 2]]);
        extend(&mut sums, long, &[&[1, 2], &[-4], &[5, -9]]);
        extend(&mut sums, late, &[&[1, 2], &[-4]]);
        assert_eq!(sums.totals(3), Some(&[3, -4, -4][..]));
        assert_eq!(sums.totals(1), Some(&[3][..]));
        assert_eq!(sums.magnitude(), 21);
        let next = sums.begin_next();
        assert_eq!(next.end(), 3);
        extend(&mut sums, next, &[&[7]]);
        assert_eq!((sums.totals(4), sums.magnitude()), (Some(&[3, -4, -4, 7][..]), 28));
    }

    #[test]
    fn sums_that_may_have_wrapped_are_not_returned() {
        let mut sums = RowSums::default();
        let next = sums.begin_next();
        extend(&mut sums, next, &[&[i64::MAX]]);
        assert_eq!(sums.totals(1), Some(&[i64::MAX][..]));
        let next = sums.begin_next();
        extend(&mut sums, next, &[&[i64::MIN, i64::MIN]]);
        assert_eq!((sums.totals(2), sums.magnitude()), (None, u64::MAX));
    }

    #[test]
    fn damaged_rows_are_an_error() {
        let mut next = RowSums::default().begin_next();
        assert!(next.push(&[8, 1, 2]).is_err());
        assert_eq!(next.end(), 0);
    }
}
