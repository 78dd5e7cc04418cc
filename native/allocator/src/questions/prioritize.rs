//! Prioritize: how good each node would be with the pod, and what kube-scheduler is told about it.
//!
//! Score answers from the same verdicts as filter and holds the best node's cards for a moment, because kube-scheduler
//! binds asynchronously and filters the next pod meanwhile.

use crate::engine::Allocator;
use crate::speed::verdict::Verdict;
use crate::state::list::List;
use crate::state::names::Numbers;
use crate::wire::Request;
use crate::wire::check;
use hami_limits::InvalidValue;

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

impl Allocator {
    /// 0 to 10,000 for each of these nodes, and cards held on the best one for so long.
    pub fn score<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        now_ns: u64,
        hold_ns: u64,
    ) -> Result<Vec<u16>, InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let numbers = self.names.get_all(names);
        Ok(self.rate(request, &numbers, now_ns, hold_ns).scores)
    }

    /// The same of a JSON list, and which is the best. What is known of the list need not be read.
    pub fn score_list<'a>(
        &mut self,
        request: &Request,
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

    fn rate(&mut self, request: &Request, numbers: &Numbers, now_ns: u64, hold_ns: u64) -> Rated {
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
