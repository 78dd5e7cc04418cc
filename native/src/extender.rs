//! What kube-scheduler asks an extender, in bulk: node names as they came, and the whole answer.
//!
//! A large cluster has thousands of names in every request. As JSON they are read in place and written again;
//! made into Python's strings, tuples and structures they take longer than the allocator does. The names of
//! fields are those of `k8s.io/kube-scheduler/extender/v1` (`hami_py/scheduler/wire.py`).

use hami_allocator::{Filtered, InvalidValue};
use serde::Deserialize;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// What an extender may give at most (`MaxExtenderPriority`).
const BEST: u32 = 10;

/// What follows a name, by its score.
const ENDS: [&[u8]; BEST as usize + 1] = [
    br#","Score":0}"#,
    br#","Score":1}"#,
    br#","Score":2}"#,
    br#","Score":3}"#,
    br#","Score":4}"#,
    br#","Score":5}"#,
    br#","Score":6}"#,
    br#","Score":7}"#,
    br#","Score":8}"#,
    br#","Score":9}"#,
    br#","Score":10}"#,
];

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
pub fn names(json: &[u8]) -> Result<Vec<Name<'_>>, InvalidValue> {
    serde_json::from_slice(json)
        .map_err(|error| InvalidValue::new("names", &error.to_string(), "write a list of names"))
}

/// `ExtenderFilterResult`.
pub fn filter_result(names: &[Name<'_>], filtered: &Filtered) -> Vec<u8> {
    // A name has two or three dozen bytes, a reason as many dozens.
    let mut answer = Vec::with_capacity(
        64 + 32 * names.len() + 96 * (filtered.failed.len() + filtered.unresolvable.len()),
    );
    answer.extend_from_slice(br#"{"NodeNames":["#);
    each(&mut answer, &filtered.feasible, |answer, node| name(answer, &names[*node as usize]));
    answer.extend_from_slice(br#"],"FailedNodes":{"#);
    reasons(&mut answer, names, &filtered.failed);
    answer.extend_from_slice(br#"},"FailedAndUnresolvableNodes":{"#);
    reasons(&mut answer, names, &filtered.unresolvable);
    answer.extend_from_slice(br#"},"Error":""}"#);
    answer
}

/// `HostPriorityList` of scores, by what the nodes are to each other: 10 for the best alone, which is the
/// one that is held, and 9 to 0 for the others.
///
/// A pod is often so small beside a node that their scores are equal in tenths of the whole scale,
/// and among equals kube-scheduler takes any: full nodes would not be filled before empty ones.
pub fn host_priorities(names: &[Name<'_>], scores: &[u16]) -> Vec<u8> {
    let mut answer = Vec::with_capacity(2 + 56 * names.len());
    answer.push(b'[');
    let rated: Vec<(&Name<'_>, u16)> = names.iter().zip(scores.iter().copied()).collect();
    let held = rated.iter().max_by_key(|(name, score)| (*score, Reverse(name.as_ref())));
    let held = held.map_or("", |(name, _)| name.as_ref());
    let most = scores.iter().max().copied().unwrap_or(0);
    let least = scores.iter().min().copied().unwrap_or(0);
    each(&mut answer, &rated, |answer, (host, score)| {
        let level = match most - least {
            0 => BEST - 1,
            range => u32::from(score - least) * (BEST - 1) / u32::from(range),
        };
        let level = if *score == most && host.as_ref() == held { BEST } else { level };
        answer.extend_from_slice(br#"{"Host":"#);
        name(answer, host);
        answer.extend_from_slice(ENDS[level as usize]);
    });
    answer.push(b']');
    answer
}

fn reasons(answer: &mut Vec<u8>, names: &[Name<'_>], nodes: &[(u32, Arc<str>)]) {
    each(answer, nodes, |answer, (node, why)| {
        name(answer, &names[*node as usize]);
        answer.push(b':');
        plain(answer, &**why);
    });
}

fn name(answer: &mut Vec<u8>, name: &Name<'_>) {
    match &name.0 {
        // As it stood between quotes.
        Cow::Borrowed(text) => {
            answer.push(b'"');
            answer.extend_from_slice(text.as_bytes());
            answer.push(b'"');
        }
        Cow::Owned(text) => plain(answer, text),
    }
}

fn plain(answer: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
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
