//! The steps of a namespace, and when its refused pods are retried.

use super::{BACK_NS, BETWEEN_NS, FREE, LONGEST_NS, NAMESPACE, Spending};
use crate::search::effort::{Effort, QUESTION};
use crate::wire::Pod;

/// The steps that a question gets if it could use this many.
fn search(spending: &mut Spending, namespace: &str, steps: u64, now_ns: u64) -> u64 {
    let effort = spending.question(namespace, now_ns).after(steps);
    spending.count(namespace, &effort, now_ns);
    effort.taken()
}

/// Asks until the namespace only gets the free steps.
fn exhaust(spending: &mut Spending, namespace: &str, now_ns: u64) {
    while search(spending, namespace, QUESTION, now_ns) > FREE {}
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

/// The first second in which pods can be retried.
fn again_s(spending: &mut Spending, from_s: u64) -> Option<u64> {
    let before = spending.returned(from_s * 1_000_000_000);
    (from_s..from_s + 1_000).find(|at| spending.returned(at * 1_000_000_000) > before)
}

#[test]
fn pods_refused_because_of_the_debt_are_retried_when_it_is_paid() {
    let mut spending = Spending::default();
    for _ in 0..3 {
        search(&mut spending, "team", QUESTION, 0);
    }
    assert_eq!(again_s(&mut spending, 0), None, "no pod was refused");
    exhaust(&mut spending, "team", 1_000_000_000_000);
    let again = again_s(&mut spending, 1_000).expect("they come back");
    assert_eq!(search(&mut spending, "team", QUESTION, again * 1_000_000_000), QUESTION);
    assert_eq!(again_s(&mut spending, again), None, "once");
}

#[test]
fn pods_without_victims_because_of_the_debt_are_retried() {
    let mut spending = Spending::default();
    assert_eq!(preempt(&mut spending, "a", 4, NAMESPACE / 2, 0), 2);
    let again = again_s(&mut spending, 0).expect("they come back");
    assert_eq!(preempt(&mut spending, "a", 2, NAMESPACE / 2, again * 1_000_000_000), 2);
    assert_eq!(again_s(&mut spending, again), None);
}

/// All pods are asked about whenever they are retried, for an hour in which nothing else happens.
#[test]
fn retries_take_little_time_however_many_pods_there_are() {
    const HOUR: u64 = 3_600 * 1_000_000_000;
    for (namespaces, pods) in [(1, 1), (1, 40), (1, 200), (3, 20)] {
        let mut spending = Spending::default();
        let names: Vec<String> = (0..namespaces).map(|at| format!("team-{at}")).collect();
        let (mut now_ns, mut before, mut taken, mut times) = (0, 0, 0, 0);
        for name in &names {
            exhaust(&mut spending, name, 0);
        }
        let mut last_ns = 0;
        while now_ns < HOUR {
            if spending.returned(now_ns) > before {
                before = spending.returned(now_ns);
                assert!(times == 0 || now_ns - last_ns >= BETWEEN_NS);
                last_ns = now_ns;
                for name in &names {
                    let all = (0..pods).map(|_| search(&mut spending, name, 10 * QUESTION, now_ns));
                    taken += all.sum::<u64>();
                    // One pod alone does not use up the steps.
                    exhaust(&mut spending, name, now_ns);
                }
                times += 1;
            }
            now_ns += 1_000_000_000;
        }
        assert!(times >= HOUR / LONGEST_NS, "{times}");
        // The share of the time in which steps were taken, at 0.1 us each. The free steps of
        // answered questions do not delay a retry.
        let share = HOUR / 100 / taken;
        assert!(
            share >= 20 * (QUESTION - FREE) / QUESTION / namespaces,
            "1 / {share} of the time for {namespaces} of {pods}"
        );
    }
}
