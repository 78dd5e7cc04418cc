//! The scenes in which the shares have to hold, with the expected percentage of each slice.

use hami_share::{Mode, Priority, Regime};

use super::scene::{hard, soft};
use super::{MS, Program, US};

pub struct Scene {
    pub name: String,
    /// Each slice: its regime, its processes, and its expected percentage of the card.
    pub slices: Vec<(Regime, Vec<Program>, f64)>,
}

const NONE: Regime = Regime { share: 0, mode: Mode::Hard, priority: Priority::Normal };

pub fn all() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for share in [10, 25, 30, 50, 75, 90] {
        for (name, length) in lengths() {
            scenes.push(one_each(&format!("alone {share}, {name}"), vec![(hard(share), length)]));
        }
    }
    for (a, b) in [(30, 70), (10, 90), (75, 25)] {
        for (mode, regime) in [("hard", hard as fn(u32) -> Regime), ("soft", soft)] {
            for (name, length) in lengths() {
                let slices = vec![(regime(a), length.clone()), (regime(b), length)];
                scenes.push(one_each(&format!("{mode} {a}/{b}, {name}"), slices));
            }
            let mixed = vec![(regime(a), short()), (regime(b), kernels(50 * MS))];
            scenes.push(one_each(&format!("{mode} {a}/{b}, 20 us against 50 ms"), mixed));
        }
    }
    for (mode, regime) in [("hard", hard as fn(u32) -> Regime), ("soft", soft)] {
        for (name, length) in lengths() {
            let slices = vec![(regime(25), length); 4];
            scenes.push(one_each(&format!("{mode} 4 x 25, {name}"), slices));
        }
        let four = lengths().map(|(_, length)| (regime(25), length)).to_vec();
        scenes.push(one_each(&format!("{mode} 4 x 25, 20 us to 50 ms"), four));
    }
    scenes.extend(unequal());
    scenes
}

fn unequal() -> Vec<Scene> {
    let idle = Program::Bursty { period: u64::MAX / 4, busy: MS };
    let tenth = Program::Bursty { period: 500 * MS, busy: 50 * MS };
    let high = Regime { priority: Priority::High, ..hard(30) };
    let greedy = Regime { priority: Priority::High, ..soft(10) };
    let low = Regime { priority: Priority::Low, ..soft(90) };
    let k = kernels;
    vec![
        scene("hard 20 + 30", vec![(hard(20), k(MS), 20.0), (hard(30), k(MS), 30.0)]),
        scene(
            "hard 10 + 20 + 30, 5 ms",
            vec![
                (hard(10), k(5 * MS), 10.0),
                (hard(20), k(5 * MS), 20.0),
                (hard(30), k(5 * MS), 30.0),
            ],
        ),
        scene(
            "hard 20 + 30, 50 ms",
            vec![(hard(20), k(50 * MS), 20.0), (hard(30), k(50 * MS), 30.0)],
        ),
        scene("hard 30 + no share", vec![(hard(30), k(MS), 30.0), (NONE, k(MS), 70.0)]),
        scene("hard 30 + soft 30", vec![(hard(30), k(MS), 30.0), (soft(30), k(MS), 70.0)]),
        scene(
            "soft 40 + no share + no share",
            vec![(soft(40), k(MS), 40.0), (NONE, k(MS), 30.0), (NONE, k(5 * MS), 30.0)],
        ),
        scene("soft 30 + idle 70", vec![(soft(30), k(MS), 100.0), (soft(70), idle.clone(), 0.0)]),
        scene(
            "soft 25 + 25 + idle 25 + idle 25",
            vec![
                (soft(25), k(MS), 50.0),
                (soft(25), k(5 * MS), 50.0),
                (soft(25), idle.clone(), 0.0),
                (soft(25), idle, 0.0),
            ],
        ),
        scene(
            "soft 25 + 25 + 25 at a tenth",
            vec![(soft(25), k(MS), 45.0), (soft(25), k(MS), 45.0), (soft(25), tenth.clone(), 10.0)],
        ),
        scene("hard 30 at a tenth + no share", vec![(hard(30), tenth, 10.0), (NONE, k(MS), 90.0)]),
        scene("hard 30 of ten processes", vec![(hard(30), vec![k(MS); 10], 30.0)]),
        scene(
            "hard 30 of ten processes + soft 70",
            vec![(hard(30), vec![k(MS); 10], 30.0), (soft(70), vec![k(MS)], 70.0)],
        ),
        scene("high hard 30 + soft 10", vec![(high, k(MS), 30.0), (soft(10), k(MS), 70.0)]),
        scene("high soft 10 + low soft 90", vec![(greedy, k(MS), 100.0), (low, k(MS), 0.0)]),
    ]
}

fn lengths() -> [(&'static str, Program); 4] {
    [
        ("20 us", short()),
        ("500 us", kernels(500 * US)),
        ("5 ms", kernels(5 * MS)),
        ("50 ms", kernels(50 * MS)),
    ]
}

fn short() -> Program {
    kernels(20 * US)
}

fn kernels(ns: u64) -> Program {
    Program::Saturate(vec![ns])
}

fn one_each(name: &str, slices: Vec<(Regime, Program)>) -> Scene {
    let slices = slices
        .into_iter()
        .map(|(regime, program)| (regime, vec![program], f64::from(regime.share)))
        .collect();
    Scene { name: name.into(), slices }
}

/// One program or several.
trait Programs {
    fn list(self) -> Vec<Program>;
}

impl Programs for Program {
    fn list(self) -> Vec<Program> {
        vec![self]
    }
}

impl Programs for Vec<Program> {
    fn list(self) -> Vec<Program> {
        self
    }
}

fn scene<P: Programs>(name: &str, slices: Vec<(Regime, P, f64)>) -> Scene {
    let slices = slices.into_iter().map(|(regime, it, percent)| (regime, it.list(), percent));
    Scene { name: name.into(), slices: slices.collect() }
}
