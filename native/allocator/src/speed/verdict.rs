//! What nodes are to a class, and how that is remembered: eight bytes a node.
//!
//! Thousands are read for each question, in the order in which nodes are asked for, and there is little in them to be
//! worked out: what it takes is waiting for memory. So reasons stand in a list of their own, a few for each class.

use std::sync::Arc;

/// More reasons than a class ever has; beyond that it begins anew.
const REASONS: usize = 1024;

/// What a node is to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does, with this score.
    Fits(u16),
    /// It does not; other pods' going may help.
    Full(Arc<str>),
    /// It does not, and nobody is to be evicted for it (`FailedAndUnresolvableNodes`).
    Unresolvable(Arc<str>),
}

/// The same, of another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// It does, with this score.
    Fits(u16),
    /// It does not; other pods' going may help.
    Full(&'a Arc<str>),
    /// It does not, and nobody is to be evicted for it.
    Unresolvable(&'a Arc<str>),
}

impl Verdict {
    /// What it says.
    pub fn told(&self) -> Told<'_> {
        match self {
            Self::Fits(score) => Told::Fits(*score),
            Self::Full(why) => Told::Full(why),
            Self::Unresolvable(why) => Told::Unresolvable(why),
        }
    }
}

/// A verdict; reasons are positions in the list of the class.
#[derive(Clone, Copy)]
enum Short {
    Fits(u16),
    Full(u16),
    Unresolvable(u16),
}

/// What is known of a node, and of which of its generations.
#[derive(Clone, Copy)]
struct Known {
    generation: u32,
    verdict: Short,
}

/// Nothing: no node has this generation.
const NOTHING: Known = Known { generation: 0, verdict: Short::Fits(0) };

/// Verdicts of one class, by the number of the node.
#[derive(Default)]
pub struct Verdicts {
    each: Vec<Known>,
    reasons: Vec<Arc<str>>,
}

impl Verdicts {
    /// Forgets all of them, and keeps the memory.
    pub fn clear(&mut self) {
        self.each.clear();
        self.reasons.clear();
    }

    /// Makes room for so many nodes.
    pub fn resize(&mut self, nodes: usize) {
        self.each.resize(nodes, NOTHING);
    }

    /// For how many there is room.
    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// What is known of a node as it is in that generation.
    #[inline]
    pub fn get(&self, number: u32, generation: u32) -> Option<Told<'_>> {
        let known = self.each[number as usize];
        (known.generation == generation).then(|| match known.verdict {
            Short::Fits(score) => Told::Fits(score),
            Short::Full(why) => Told::Full(&self.reasons[usize::from(why)]),
            Short::Unresolvable(why) => Told::Unresolvable(&self.reasons[usize::from(why)]),
        })
    }

    /// What was found out about it.
    pub fn set(&mut self, number: u32, generation: u32, verdict: &Verdict) {
        let verdict = match verdict {
            Verdict::Fits(score) => Short::Fits(*score),
            Verdict::Full(why) => Short::Full(self.reason(why)),
            Verdict::Unresolvable(why) => Short::Unresolvable(self.reason(why)),
        };
        self.each[number as usize] = Known { generation, verdict };
    }

    fn reason(&mut self, why: &Arc<str>) -> u16 {
        let same = |known: &Arc<str>| Arc::ptr_eq(known, why) || known == why;
        let place = self.reasons.iter().position(same).unwrap_or_else(|| {
            if self.reasons.len() == REASONS {
                self.each.fill(NOTHING);
                self.reasons.clear();
            }
            self.reasons.push(why.clone());
            self.reasons.len() - 1
        });
        place as u16
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, REASONS, Told, Verdict, Verdicts};

    #[test]
    fn a_verdict_takes_eight_bytes() {
        assert_eq!(size_of::<Known>(), 8);
    }

    #[test]
    fn what_was_found_out_is_told_for_that_generation_alone() {
        let mut verdicts = Verdicts::default();
        verdicts.resize(4);
        let said = [
            Verdict::Fits(10_000),
            Verdict::Full("full".into()),
            Verdict::Unresolvable("no cards".into()),
            Verdict::Unresolvable("full".into()),
        ];
        for (number, verdict) in (0..).zip(&said) {
            assert_eq!(verdicts.get(number, 7), None);
            verdicts.set(number, 7, verdict);
        }
        for (number, verdict) in (0..).zip(&said) {
            assert_eq!(verdicts.get(number, 7), Some(verdict.told()));
            assert_eq!(verdicts.get(number, 8), None);
        }
        assert_eq!(verdicts.reasons.len(), 2);
        verdicts.clear();
        verdicts.resize(4);
        assert_eq!(verdicts.get(0, 7), None);
    }

    #[test]
    fn too_many_reasons_are_forgotten_with_what_they_were_of() {
        let mut verdicts = Verdicts::default();
        verdicts.resize(2);
        for at in 0..=REASONS {
            verdicts.set((at % 2) as u32, 1, &Verdict::Full(at.to_string().into()));
        }
        let last = REASONS as u32 % 2;
        assert_eq!(verdicts.get(last, 1), Some(Told::Full(&REASONS.to_string().into())));
        assert_eq!(verdicts.get(1 - last, 1), None);
    }
}
