//! What kube-scheduler asks an extender, in bulk: node names as they came, and the whole answer.
//!
//! A large cluster has thousands of names in every request. As JSON they are read in place and written again;
//! made into Python's strings, tuples and structures they take longer than the allocator does. The names of
//! fields are those of `k8s.io/kube-scheduler/extender/v1` (`hami_py/scheduler/wire.py`).

use hami_allocator::{Filtered, InvalidValue};
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;

/// What an extender may give at most (`MaxExtenderPriority`).
const BEST: u32 = 10;

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

/// `HostPriorityList` of scores from 0 to 100.
pub fn host_priorities(names: &[Name<'_>], scores: &[u8]) -> Vec<u8> {
    let mut answer = Vec::with_capacity(2 + 56 * names.len());
    answer.push(b'[');
    let rated: Vec<_> = names.iter().zip(scores).collect();
    each(&mut answer, &rated, |answer, (host, score)| {
        answer.extend_from_slice(br#"{"Host":"#);
        name(answer, host);
        answer.extend_from_slice(br#","Score":"#);
        plain(answer, &((u32::from(**score) * BEST + 50) / 100));
        answer.push(b'}');
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
