//! Reads and writes the bulk of the extender's JSON: lists of node names, and whole answers.
//!
//! In a large cluster every request has thousands of names. They are read in place and copied to
//! the answer, because converting them to Python objects takes longer than the allocator. The
//! fields are those of `k8s.io/kube-scheduler/extender/v1` (`hami_py/scheduler/extender_api.py`).

use hami_allocator::{Filtered, List, MOST_PRIORITY, Numbers, Rated, Span, Texts};
use std::sync::Arc;

/// The text before the first host.
const OPENING: &[u8] = br#"[{"Host":"#;

/// The text between two hosts, by the score of the first.
const BETWEEN: [&[u8]; MOST_PRIORITY + 1] = [
    br#","Score":0},{"Host":"#,
    br#","Score":1},{"Host":"#,
    br#","Score":2},{"Host":"#,
    br#","Score":3},{"Host":"#,
    br#","Score":4},{"Host":"#,
    br#","Score":5},{"Host":"#,
    br#","Score":6},{"Host":"#,
    br#","Score":7},{"Host":"#,
    br#","Score":8},{"Host":"#,
    br#","Score":9},{"Host":"#,
    br#","Score":10},{"Host":"#,
];

/// The names in the last answer to a filter: kube-scheduler sends them back to prioritize them.
#[derive(Default)]
pub struct Answered {
    json: Vec<u8>,
    spans: Vec<Span>,
    numbers: Numbers,
}

impl Answered {
    /// Takes what is known of this list, if it is the one of the last answer.
    pub fn take<'a>(&mut self, json: &'a [u8]) -> Option<List<'a>> {
        if self.json != json || json.is_empty() {
            return None;
        }
        let Self { spans, numbers, .. } = std::mem::take(self);
        Some(List::known(json, spans, numbers))
    }
}

/// `ExtenderFilterResult`.
pub fn filter_result(list: &List<'_>, filtered: Filtered, answered: &mut Answered) -> Vec<u8> {
    // A name has two or three dozen bytes, a reason as many dozens.
    let mut answer = Vec::with_capacity(
        64 + 32 * list.len() + 96 * (filtered.failed.len() + filtered.unresolvable.len()),
    );
    answer.extend_from_slice(br#"{"NodeNames":"#);
    let start = answer.len();
    answer.push(b'[');
    let spans = feasible(&mut answer, list, &filtered.feasible);
    answer.push(b']');
    answered.json.clear();
    if let Some(spans) = spans {
        answered.json.extend_from_slice(&answer[start..]);
        (answered.spans, answered.numbers) = (spans, filtered.numbers);
    }
    answer.extend_from_slice(br#","FailedNodes":{"#);
    reasons(&mut answer, list, &filtered.failed);
    answer.extend_from_slice(br#"},"FailedAndUnresolvableNodes":{"#);
    reasons(&mut answer, list, &filtered.unresolvable);
    answer.extend_from_slice(br#"},"Error":""}"#);
    answer
}

/// Writes names in the order of the list, copying adjacent ones at once. Returns their positions
/// behind the opening bracket, if the list has positions.
fn feasible(answer: &mut Vec<u8>, list: &List<'_>, positions: &[u32]) -> Option<Vec<Span>> {
    let Texts::Plain(spans) = list.texts() else {
        each(answer, positions, |answer, at| name(answer, list, *at as usize));
        return None;
    };
    let bracket = answer.len() - 1;
    let mut written = Vec::with_capacity(positions.len());
    let runs: Vec<&[u32]> = positions.chunk_by(|one, next| one + 1 == *next).collect();
    each(answer, &runs, |answer, run| {
        let run = &spans[run[0] as usize..=run[run.len() - 1] as usize];
        let there = run[0].start..run[run.len() - 1].end;
        let start = (answer.len() - bracket + 1) as u32;
        let moved = |at: u32| at - there.start + start;
        written.extend(run.iter().map(|span| moved(span.start)..moved(span.end)));
        answer.extend_from_slice(list.quoted(&there));
    });
    Some(written)
}

/// `HostPriorityList`.
pub fn host_priorities(list: &List<'_>, rated: &Rated) -> Vec<u8> {
    if list.is_empty() {
        return b"[]".to_vec();
    }
    let mut answer = Vec::with_capacity(64 + (32 + BETWEEN[0].len()) * list.len());
    answer.extend_from_slice(OPENING);
    for (at, priority) in rated.priorities().enumerate() {
        name(&mut answer, list, at);
        answer.extend_from_slice(BETWEEN[priority]);
    }
    // There is no host after the last.
    answer.truncate(answer.len() - OPENING.len());
    answer.push(b']');
    answer
}

fn reasons(answer: &mut Vec<u8>, list: &List<'_>, nodes: &[(u32, Arc<str>)]) {
    each(answer, nodes, |answer, (node, why)| {
        name(answer, list, *node as usize);
        answer.push(b':');
        json(answer, &**why);
    });
}

fn name(answer: &mut Vec<u8>, list: &List<'_>, at: usize) {
    match list.texts() {
        Texts::Plain(spans) => answer.extend_from_slice(list.quoted(&spans[at])),
        Texts::Other(texts) => json(answer, &texts[at]),
    }
}

fn json(answer: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(answer, value).expect("plain values are JSON");
}

/// Writes values with commas between them.
fn each<T>(answer: &mut Vec<u8>, all: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            answer.push(b',');
        }
        write(answer, one);
    }
}
