//! The steps of a namespace.

use super::{BACK_NS, FREE, NAMESPACE, Spending};
use crate::search::effort::{Effort, QUESTION};
use crate::wire::Pod;

/// The steps that a question gets if it could use this many.
fn search(spending: &mut Spending, namespace: &str, steps: u64, now_ns: u64) -> u64 {
    let effort = spending.question(namespace, now_ns).after(steps);
    spending.count(namespace, &effort, now_ns);
    effort.taken()
}

#[test]
fn plain_questions_are_free() {
    let mut spending = Spending::default();
    for _ in 0..1_000 {
        assert_eq!(search(&mut spending, "team", FREE, 0), FREE);
    }
    assert_eq!(search(&mut spending, "team", QUESTION, 0), QUESTION);
}

#[test]
fn hard_questions_leave_the_free_steps_and_time_pays_the_debt() {
    let mut spending = Spending::default();
    let whole = (0..1000).take_while(|_| search(&mut spending, "team", QUESTION, 0) == QUESTION);
    let enough = NAMESPACE / (QUESTION - FREE);
    let whole = whole.count() as u64;
    assert!(whole.abs_diff(enough) <= 1, "{whole}");
    for _ in 0..100 {
        assert!(search(&mut spending, "team", QUESTION, 0) >= FREE);
    }
    assert_eq!(search(&mut spending, "team", QUESTION, 0), FREE);
    assert!(spending.question("team", 0).is_last());
    assert_eq!(search(&mut spending, "other", QUESTION, 0), QUESTION);
    assert_eq!(search(&mut spending, "team", QUESTION, NAMESPACE * BACK_NS), QUESTION);
}

/// How many of these nodes are searched.
fn preempt(spending: &mut Spending, uid: &str, nodes: usize, steps: u64, now_ns: u64) -> usize {
    let pod = Pod { uid: uid.into(), namespace: "team".into(), name: uid.into() };
    let judge = (0..nodes).filter(|_| {
        let may = spending.may_preempt(&pod, now_ns);
        if may {
            spending.count_preemption(&pod, &Effort::within(u64::MAX).after(steps), now_ns);
        }
        may
    });
    judge.count()
}

#[test]
fn a_first_preemption_uses_the_steps_of_the_namespace_and_is_a_debt() {
    const HARD: u64 = NAMESPACE / 4 - 1;
    let mut spending = Spending::default();
    // The last one may take more than is left.
    assert_eq!(preempt(&mut spending, "a", 500, HARD, 0), 5);
    assert_eq!(preempt(&mut spending, "b", 500, HARD, 0), 1);
    assert_eq!(preempt(&mut spending, "c", 500, FREE / 100, 0), 100);
    assert!(spending.question("team", 0).is_last());
    let back = 6 * HARD * BACK_NS;
    assert_eq!(preempt(&mut spending, "d", 500, HARD, back), 5);
}

#[test]
fn plain_preemptions_are_free() {
    let mut spending = Spending::default();
    for at in 0..1_000 {
        assert_eq!(preempt(&mut spending, &at.to_string(), 100, FREE / 100, 0), 100);
    }
    assert_eq!(search(&mut spending, "team", QUESTION, 0), QUESTION);
}
