//! Works verdicts out, one node after the other.

use crate::allowance::{Allowance, Answers};
use crate::class::Class;
use crate::effort::Effort;
use crate::engine::Allocator;
use crate::fit::View;
use crate::hash::Map;
use crate::lens::{Lens, Lenses, Scales};
use crate::quota::Room;
use crate::reason::{KINDS, NodeReason};
use crate::score;
use crate::search::{self, Entry};
use crate::slim::Glance;
use crate::tally;
use crate::verdict::{Verdict, Verdicts};
use crate::wire::Request;
use std::sync::Arc;

/// For one question.
pub struct Looker<'a> {
    /// The nodes.
    pub allocator: &'a Allocator,
    /// What they are looked at for.
    pub class: &'a Class,
    /// For searches.
    pub entries: Vec<Entry>,
    /// What the question has taken.
    pub effort: &'a mut Effort,
    /// At how many nodes.
    pub looks: u64,
    /// Nodes often have the same reason; it is put into words once.
    texts: Map<NodeReason, Arc<str>>,
    /// The same where it is nothing but the cards, by what stands in the way of the nearest one; the last
    /// is for none.
    obstacles: [Option<Arc<str>>; KINDS + 1],
    loads: Vec<(u8, crate::card::Use)>,
    scales: Scales,
}

impl<'a> Looker<'a> {
    /// One that has not looked yet.
    pub fn new(
        allocator: &'a Allocator,
        class: &'a Class,
        entries: Vec<Entry>,
        effort: &'a mut Effort,
    ) -> Self {
        let (texts, obstacles, loads) = (Map::default(), Default::default(), Vec::new());
        let scales = Scales::of(class);
        Self { allocator, class, entries, effort, looks: 0, texts, obstacles, loads, scales }
    }

    /// Makes a verdict that of the node as it is; whether it is that now.
    pub fn refresh(&mut self, lenses: &Lenses<'_>, number: u32, verdicts: &mut Verdicts) -> bool {
        let now = self.allocator.generations[number as usize];
        if verdicts.get(number, now).is_some() {
            return true;
        }
        let glance = self.allocator.shelf.get(number);
        let lens = lenses.get(glance.mode, glance.placement);
        let verdict = if let Some(lens) = lens.filter(|_| !glance.rests.is_empty()) {
            self.glance(lens, &glance)
        } else if self.effort.is_spent() {
            return false;
        } else {
            self.look(&self.allocator.node(number).view(), None)
        };
        verdicts.set(number, now, &verdict);
        true
    }

    /// The verdict of the node as it is where a quota's answer depends on the cards, if there is time to find it out.
    pub fn within(
        &mut self,
        room: &Room<'_>,
        left_mib: u64,
        number: u32,
        known: &mut Answers,
    ) -> Option<Verdict> {
        let now = self.allocator.generations[number as usize];
        if let Some(answer) = known.find(now, left_mib) {
            return Some(answer.verdict(room, |over| Verdict::Unresolvable(self.say(over))));
        }
        if self.effort.is_spent() {
            return None;
        }
        let allowance = Allowance::of(room);
        let verdict = self.look(&self.allocator.node(number).view(), Some(&allowance));
        known.add(now, allowance.answer(&verdict));
        Some(verdict)
    }

    /// The verdict of a node without the pod that is asked for, if there is time to find it out.
    pub fn without_itself(
        &mut self,
        request: &Request,
        room: Option<&Room<'_>>,
        number: u32,
    ) -> Option<Verdict> {
        let quota = room.map(Allowance::of);
        (!self.effort.is_spent()).then(|| {
            self.allocator.with_view(request, number, &[], |view| self.look(view, quota.as_ref()))
        })
    }

    /// The verdict of a node that looks so.
    fn look(&mut self, view: &View<'_>, quota: Option<&Allowance<'_>>) -> Verdict {
        self.looks += 1;
        let Self { class, effort, entries, .. } = self;
        match search::find(class, view, quota, effort, entries) {
            Ok(()) => {
                score::loads(self.class, view, &self.entries, &mut self.loads);
                Verdict::Fits(score::score(self.class, view, &self.entries, &self.loads))
            }
            Err(reason) => self.unfit(view, reason),
        }
    }

    fn glance(&mut self, lens: &Lens<'_>, node: &Glance<'_>) -> Verdict {
        self.looks += 1;
        if let Some(score) = lens.look(node, &mut self.scales) {
            return Verdict::Fits(score);
        }
        let obstacle = lens.obstacle(node);
        let text = &mut self.obstacles[obstacle.unwrap_or(KINDS)];
        let text = text.get_or_insert_with(|| tally::brief(obstacle).into()).clone();
        if lens.unfit_when_empty(node) { Verdict::Unresolvable(text) } else { Verdict::Full(text) }
    }

    fn unfit(&mut self, view: &View<'_>, reason: NodeReason) -> Verdict {
        let unresolvable = reason.is_lasting()
            || search::unfit_when_empty(self.class, view, self.effort, &mut self.entries);
        let text = self.say(reason);
        if unresolvable { Verdict::Unresolvable(text) } else { Verdict::Full(text) }
    }

    /// A reason in words.
    pub fn say(&mut self, reason: NodeReason) -> Arc<str> {
        let text = |reason: &NodeReason| Arc::from(reason.brief());
        self.texts.entry(reason).or_insert_with_key(text).clone()
    }
}
