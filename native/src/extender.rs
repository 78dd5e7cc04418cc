//! What kube-scheduler asks an extender, in bulk: node names as they came, and the whole answer.
//!
//! A large cluster has thousands of names in every request. As JSON they are read in place and written again;
//! made into Python's strings, tuples and structures they take longer than the allocator does. The names of
//! fields are those of `k8s.io/kube-scheduler/extender/v1` (`hami_py/scheduler/wire.py`).

use hami_allocator::{Filtered, InvalidValue, Numbers, Rated};
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;

/// What an extender may give at most (`MaxExtenderPriority`).
const BEST: usize = 10;

/// What stands before the first host and behind the last score.
const OPENING: &[u8] = br#"[{"Host":"#;

/// What stands between two hosts, by the score of the first.
const BETWEEN: [&[u8; 20]; BEST] = [
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
];
const BETWEEN_BEST: &[u8] = br#","Score":10},{"Host":"#;

/// A node's name, in place where nothing in it is escaped.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl AsRef<str> for Name<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The names of a JSON list.
pub struct Names<'a> {
    json: &'a [u8],
    each: Vec<Name<'a>>,
    /// They stand in the list as Go writes it: nothing is escaped, and there are no blanks.
    are_plain: bool,
}

impl<'a> Names<'a> {
    /// Reads them.
    pub fn read(json: &'a [u8]) -> Result<Self, InvalidValue> {
        if let Some(each) = plain(json) {
            return Ok(Self { json, each, are_plain: true });
        }
        let each = serde_json::from_slice(json).map_err(|error| {
            InvalidValue::new("names", &error.to_string(), "write a list of names")
        })?;
        Ok(Self { json, each, are_plain: false })
    }

    /// One after the other.
    pub fn each(&self) -> &[Name<'a>] {
        &self.each
    }

    /// Writes one with its quotes.
    fn write(&self, answer: &mut Vec<u8>, at: usize) {
        if self.are_plain {
            answer.extend_from_slice(self.between(at, at));
        } else {
            json(answer, &self.each[at].0);
        }
    }

    /// Writes some, in the order in which they stand here. Those that stand side by side are copied at once.
    fn write_list(&self, answer: &mut Vec<u8>, positions: &[u32]) {
        if !self.are_plain {
            return each(answer, positions, |answer, at| self.write(answer, *at as usize));
        }
        let runs: Vec<&[u32]> = positions.chunk_by(|one, next| one + 1 == *next).collect();
        each(answer, &runs, |answer, run| {
            let (first, last) = (run[0] as usize, run[run.len() - 1] as usize);
            answer.extend_from_slice(self.between(first, last));
        });
    }

    /// What stands in the list from the one to the other, with the quotes.
    fn between(&self, first: usize, last: usize) -> &'a [u8] {
        let place = |at: usize| self.each[at].0.as_ptr().addr() - self.json.as_ptr().addr();
        &self.json[place(first) - 1..=place(last) + self.each[last].0.len()]
    }
}

/// The names of a list that is written as Go writes it.
fn plain(json: &[u8]) -> Option<Vec<Name<'_>>> {
    let text = str::from_utf8(json).ok()?.strip_prefix('[')?.strip_suffix(']')?;
    let bytes = text.as_bytes();
    let (mut is_odd, mut quotes) = (false, 0_usize);
    for byte in bytes {
        is_odd |= *byte < b' ' || *byte == b'\\';
        quotes += usize::from(*byte == b'"');
    }
    if is_odd {
        return None;
    }
    let mut names = Vec::with_capacity(quotes / 2);
    let (mut at, mut length) = (0, 0);
    loop {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let start = at + 1;
        // Names are mostly as long as the one before.
        let guessed = bytes.get(start + length..);
        let is_right = matches!(guessed, Some([b'"', b',', b'"', ..] | [b'"']));
        if !is_right {
            length = bytes[start..].iter().position(|byte| *byte == b'"')?;
        }
        names.push(Name(Cow::Borrowed(&text[start..start + length])));
        at = start + length + 1;
        match bytes.get(at) {
            None => break,
            Some(b',') => at += 1,
            Some(_) => return None,
        }
    }
    // A guess may have jumped over some.
    (quotes == 2 * names.len()).then_some(names)
}

/// What was answered to the last filter: kube-scheduler sends these names back, to have them rated.
#[derive(Default)]
pub struct Answered {
    list: Vec<u8>,
    numbers: Numbers,
}

impl Answered {
    /// The nodes' numbers, if it is that list.
    pub fn numbers(&self, list: &[u8]) -> Option<&Numbers> {
        (self.list == list).then_some(&self.numbers)
    }
}

/// `ExtenderFilterResult`.
pub fn filter_result(names: &Names<'_>, filtered: Filtered, answered: &mut Answered) -> Vec<u8> {
    // A name has two or three dozen bytes, a reason as many dozens.
    let mut answer = Vec::with_capacity(
        64 + 32 * names.each.len() + 96 * (filtered.failed.len() + filtered.unresolvable.len()),
    );
    answer.extend_from_slice(br#"{"NodeNames":"#);
    let start = answer.len();
    answer.push(b'[');
    names.write_list(&mut answer, &filtered.feasible);
    answer.push(b']');
    answered.list.clear();
    answered.list.extend_from_slice(&answer[start..]);
    answer.extend_from_slice(br#","FailedNodes":{"#);
    reasons(&mut answer, names, &filtered.failed);
    answer.extend_from_slice(br#"},"FailedAndUnresolvableNodes":{"#);
    reasons(&mut answer, names, &filtered.unresolvable);
    answer.extend_from_slice(br#"},"Error":""}"#);
    answered.numbers = filtered.numbers;
    answer
}

/// `HostPriorityList` of scores, by what the nodes are to each other: 10 for the best alone, which is the
/// one that is held, and 9 to 0 for the others.
///
/// A pod is often so small beside a node that their scores are equal in tenths of the whole scale,
/// and among equals kube-scheduler takes any: full nodes would not be filled before empty ones.
pub fn host_priorities(names: &Names<'_>, rated: &Rated) -> Vec<u8> {
    let scores = &rated.scores;
    if scores.is_empty() {
        return b"[]".to_vec();
    }
    let mut answer = Vec::with_capacity(64 + names.json.len() + BETWEEN[0].len() * scores.len());
    answer.extend_from_slice(OPENING);
    let most = scores.iter().max().copied().unwrap_or(0);
    let least = scores.iter().min().copied().unwrap_or(0);
    let range = u32::from(most - least).max(1);
    for (at, score) in scores.iter().enumerate() {
        names.write(&mut answer, at);
        if rated.best == Some(at) {
            answer.extend_from_slice(BETWEEN_BEST);
            continue;
        }
        let above = if most == least { range } else { u32::from(score - least) };
        answer.extend_from_slice(BETWEEN[(above * (BEST as u32 - 1) / range) as usize]);
    }
    // There is no host behind the last.
    answer.truncate(answer.len() - OPENING.len());
    answer.push(b']');
    answer
}

fn reasons(answer: &mut Vec<u8>, names: &Names<'_>, nodes: &[(u32, Arc<str>)]) {
    each(answer, nodes, |answer, (node, why)| {
        names.write(answer, *node as usize);
        answer.push(b':');
        json(answer, &**why);
    });
}

fn json(answer: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(answer, value).expect("plain values are JSON");
}

/// With commas between them.
fn each<T>(answer: &mut Vec<u8>, all: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            answer.push(b',');
        }
        write(answer, one);
    }
}
