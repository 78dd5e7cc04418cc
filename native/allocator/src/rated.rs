//! How good nodes are to each other, as kube-scheduler is told.

/// What an extender may give at most (`MaxExtenderPriority`).
pub const MOST_PRIORITY: usize = 10;

/// How good nodes are. Nodes are positions in the names that were given.
#[derive(Debug, Default)]
pub struct Rated {
    /// 0 to 10,000 for each, 0 where the pod does not fit.
    pub scores: Vec<u16>,
    /// The best one: of equal ones the first by name.
    pub best: Option<usize>,
}

impl Rated {
    /// 10 for the best alone, which is the one that is held, and 9 to 0 for the others.
    ///
    /// A pod is often so small beside a node that their scores are equal in tenths of the whole scale,
    /// and among equals kube-scheduler takes any: full nodes would not be filled before empty ones.
    pub fn priorities(&self) -> impl Iterator<Item = usize> {
        let most = self.scores.iter().max().copied().unwrap_or(0);
        let least = self.scores.iter().min().copied().unwrap_or(0);
        let range = u32::from(most - least).max(1);
        self.scores.iter().enumerate().map(move |(at, score)| {
            if self.best == Some(at) {
                return MOST_PRIORITY;
            }
            let above = if most == least { range } else { u32::from(score - least) };
            (above * (MOST_PRIORITY as u32 - 1) / range) as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Rated;

    fn priorities(scores: &[u16], best: Option<usize>) -> Vec<usize> {
        Rated { scores: scores.to_vec(), best }.priorities().collect()
    }

    #[test]
    fn the_best_alone_has_ten_and_the_others_what_they_are_to_each_other() {
        assert!(priorities(&[], None).is_empty());
        assert_eq!(priorities(&[0], Some(0)), [10]);
        assert_eq!(priorities(&[7000, 7000, 7000], Some(1)), [9, 10, 9]);
        assert_eq!(priorities(&[7000, 7001, 6999, 7001], Some(3)), [4, 9, 0, 10]);
        assert_eq!(priorities(&[0, 10_000, 5_000, 1_111], None), [0, 9, 4, 0]);
    }
}
