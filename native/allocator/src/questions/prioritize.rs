//! Prioritize: how good each node would be with the pod, and the priorities for kube-scheduler.
//!
//! The scores come from the verdicts of filter. The cards of the best node are held for a moment,
//! because kube-scheduler binds asynchronously and filters the next pod meanwhile.

use crate::engine::Allocator;
use crate::speed::verdict::Verdict;
use crate::state::list::List;
use crate::state::names::Numbers;
use crate::wire::PodRequest;
use crate::wire::check;
use hami_limits::InvalidValue;

/// The highest priority that an extender can return (`MaxExtenderPriority`).
pub const MOST_PRIORITY: usize = 10;

/// The result of a score. Nodes are positions in the given list of names.
#[derive(Debug, Default)]
pub struct Rated {
    /// The score of each node from 0 to 10,000; 0 if the pod does not fit.
    pub scores: Vec<u16>,
    /// The best node; of equal ones the first by name.
    pub best: Option<usize>,
}

impl Rated {
    /// The priorities: 10 for the best node alone, whose cards are held, and 0 to 9 for the others.
    ///
    /// A pod is often so small beside a node that all nodes have the same score in tenths of the
    /// scale. kube-scheduler picks any of equal nodes, and would not fill nodes one after the
    /// other.
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

impl Allocator {
    /// Scores nodes by name, and holds cards on the best one for `hold_ns`.
    pub fn score<N: AsRef<str>>(
        &mut self,
        request: &PodRequest,
        names: &[N],
        now_ns: u64,
        hold_ns: u64,
    ) -> Result<Vec<u16>, InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let numbers = self.names.get_all(names);
        Ok(self.rate(request, &numbers, now_ns, hold_ns).scores)
    }

    /// Scores a JSON list of names. A `known` list is not read again.
    pub fn score_list<'a>(
        &mut self,
        request: &PodRequest,
        json: &'a [u8],
        known: Option<List<'a>>,
        now_ns: u64,
        hold_ns: u64,
    ) -> Result<(List<'a>, Rated), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let list = match known.filter(|known| self.names.are_still(known.numbers())) {
            Some(list) => list,
            None => List::read(json, &mut self.names)?,
        };
        let rated = self.rate(request, list.numbers(), now_ns, hold_ns);
        Ok((list, rated))
    }

    fn rate(
        &mut self,
        request: &PodRequest,
        numbers: &Numbers,
        now_ns: u64,
        hold_ns: u64,
    ) -> Rated {
        let numbers = numbers.each();
        let mut scores = vec![0; numbers.len()];
        let (mut highest, mut equals) = (0, Vec::new());
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        self.judge(request, numbers, &mut effort, now_ns, |at, verdict| {
            let Verdict::Fits(score) = *verdict else { return };
            scores[at as usize] = score;
            if score > highest {
                highest = score;
                equals.clear();
            }
            if score == highest {
                equals.push(at);
            }
        });
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        let known = |at: u32| Some((self.names.at(numbers[at as usize]?), at));
        let best = equals.into_iter().filter_map(known).min().map(|(_, at)| at as usize);
        if let Some(number) = best.and_then(|at| numbers[at]).filter(|_| hold_ns > 0) {
            self.hold(request, number, now_ns, hold_ns);
        }
        Rated { scores, best }
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
