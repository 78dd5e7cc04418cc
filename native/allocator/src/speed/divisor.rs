//! Dividing by what mostly stays the same: processors take ten times as long for it as for a product.

/// Divides whole numbers.
#[derive(Debug, Default)]
pub struct Divisor {
    by: u32,
    /// 2^64 / `by`, rounded up: a product with it is right in the upper half for all numbers of 32 bits
    /// (Lemire, Kaser and Kurz, *Faster remainder by direct computation*, 2019).
    factor: u64,
}

impl Divisor {
    /// The whole part of `all / by`; none where it is divided by nothing.
    #[inline]
    pub fn divide(&mut self, all: u64, by: u64) -> Option<u64> {
        let (Ok(short), Ok(by)) = (u32::try_from(all), u32::try_from(by)) else {
            return all.checked_div(by);
        };
        if by < 2 {
            return (by == 1).then_some(all);
        }
        if self.by != by {
            (self.by, self.factor) = (by, u64::MAX / u64::from(by) + 1);
        }
        Some(((u128::from(self.factor) * u128::from(short)) >> 64) as u64)
    }
}

/// What one of so many is of the whole.
#[derive(Debug, Default)]
pub struct Reciprocal {
    all: u64,
    one: f64,
}

impl Reciprocal {
    /// `1 / all`.
    #[inline]
    pub fn one_of(&mut self, all: u64) -> f64 {
        if self.all != all {
            (self.all, self.one) = (all, 1.0 / all as f64);
        }
        self.one
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    #[test]
    fn quotients_are_those_of_the_processor() {
        let edges = |middle: u64| middle.saturating_sub(2)..=middle.saturating_add(2);
        let numbers: Vec<u64> =
            (0..64).flat_map(|bit| edges(1 << bit)).chain(edges(u64::MAX - 2)).collect();
        let mut divisor = Divisor::default();
        for by in numbers.iter().copied().chain(0..200) {
            for all in numbers.iter().copied().chain(0..2000) {
                assert_eq!(divisor.divide(all, by), all.checked_div(by), "{all} / {by}");
            }
        }
    }
}
