//! The instant before which a mark cannot be done: a promise, where a forecast is an estimate.
//!
//! New work and the end of a process can change every forecast, but not this promise: no work is
//! faster than with an engine for itself, and the items ahead of it in its lane do not disappear.
//! So a client that queries a mark repeatedly need not query the machine before that instant.

use super::Mark;
use super::engine::{Turn, least_time};
use super::program::{Program, Task};
use super::state::State;
use std::slice::from_ref;

impl State {
    /// An instant before which a pending mark is not done, whatever work is added and whichever
    /// process ends.
    pub fn earliest(&self, program: &Program, client: usize, mark: Mark) -> u64 {
        let mut at = self.now;
        let mut after = 0u64;
        let mut behind = mark;
        // Each lane waits for the next one; lanes that wait in a circle never end.
        for _ in 0..program.lanes.len() {
            let Some(lane) = program.lane(client, behind) else { break };
            let first = self.done[lane] + 1;
            let (Some(item), Some(last)) =
                (program.item(lane, first), program.item(lane, behind.position()))
            else {
                break;
            };
            after = after.saturating_add(last.lasts - item.lasts);
            match item.task {
                Task::Wait(other) => behind = other,
                Task::Copy { direction, ns } => {
                    let card = program.contexts[item.context].card;
                    let engine = &self.cards[card].copies[direction as usize];
                    at = engine.ends(lane).unwrap_or(self.now.saturating_add(ns));
                    break;
                }
                Task::Kernel { .. } | Task::Record { .. } => {
                    at = self.head_ends(program, item.context, lane);
                    break;
                }
                Task::End => break,
            }
        }
        at.saturating_add(after)
    }

    /// The same for a lane's kernel at the compute engine.
    fn head_ends(&self, program: &Program, context: usize, lane: usize) -> u64 {
        let heads = &self.contexts[context].heads;
        let Some(head) = heads.iter().find(|head| head.lane == lane) else { return self.now };
        let card = &self.cards[program.contexts[context].card];
        // `left` of the heads is valid at this instant.
        let (since, heads) = match card.turn {
            _ if card.loaded != Some(context) => (self.now, &heads[..]),
            // It does not progress while others do.
            Turn::Since(_) if !self.counts(program, head) => (self.now, from_ref(head)),
            Turn::Since(_) => (card.anchor, &heads[..]),
            Turn::Switching { until } => (until, &heads[..]),
            Turn::Idle => (self.now, &heads[..]),
        };
        since.saturating_add(least_time(heads, head))
    }
}
