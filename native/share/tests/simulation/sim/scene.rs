//! Slices that share one card, and how well their shares held.

use hami_share::{Mode, Priority, Regime};

use super::scenes::Scene;
use super::{MS, Machine, S};

pub const fn hard(share: u32) -> Regime {
    Regime { share, mode: Mode::Hard, priority: Priority::Normal }
}

pub const fn soft(share: u32) -> Regime {
    Regime { share, mode: Mode::Soft, priority: Priority::Normal }
}

/// After this many seconds, the work that was queued without permission has ended.
const SETTLED: u64 = 2;

/// The results over the time after that.
#[derive(Debug)]
pub struct Outcome {
    /// Percent of the wall time by slice.
    pub shares: Vec<f64>,
    /// All work of the same programs without limits, in percent of the wall time.
    pub native: f64,
    pub first_grant_ns: u64,
    /// Engine time by process.
    pub processes: Vec<u64>,
}

impl Outcome {
    pub fn total(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// The results as a row of a table.
    pub fn row(&self, scene: &Scene) -> String {
        let errors = self.shares.iter().zip(&scene.slices).map(|(got, slice)| got - slice.2);
        let errors: Vec<String> = errors.map(|error| format!("{error:+.2}")).collect();
        format!(
            "| {} | {} | {:.1} | {:.2} | {:.1} |",
            scene.name,
            errors.join(" / "),
            self.kept(),
            self.total(),
            self.first_grant_ns as f64 / MS as f64
        )
    }

    /// The work done, in percent of native work.
    pub fn kept(&self) -> f64 {
        self.total() / self.native * 100.0
    }
}

/// Jain's index: 1 if all are equal.
pub fn jain(works: &[u64]) -> f64 {
    let sum: f64 = works.iter().map(|work| *work as f64).sum();
    let squares: f64 = works.iter().map(|work| (*work as f64).powi(2)).sum();
    sum * sum / squares / works.len() as f64
}

/// Simulates the scene for some seconds, and for as many without limits.
pub fn play(scene: &Scene, seconds: u64) -> Outcome {
    let (machine, shares) = run(scene, seconds, false);
    let (_, native) = run(scene, seconds, true);
    let first = machine.lanes.iter().filter_map(|lane| Some(lane.launched? - lane.wanted?)).max();
    let work = |from: u64, to: u64| {
        let at = |s: u64, lane: usize| machine.seconds[s as usize - 1][lane];
        (0..machine.lanes.len()).map(|lane| at(to, lane) - at(from, lane)).collect()
    };
    Outcome {
        shares,
        native: native.iter().sum(),
        first_grant_ns: first.unwrap_or(0),
        processes: work(SETTLED, SETTLED + seconds),
    }
}

fn run(scene: &Scene, seconds: u64, native: bool) -> (Machine, Vec<f64>) {
    let mut machine = Machine::new(1);
    machine.native = native;
    for (regime, programs, _) in &scene.slices {
        let slice = machine.slice(&[(0, *regime)]);
        for program in programs {
            machine.lane(slice, 0, program.clone(), 0);
        }
    }
    machine.run((SETTLED + seconds) * S);
    let shares = by_slice(&machine, SETTLED as usize, SETTLED + seconds);
    (machine, shares)
}

/// The 95th percentile of the distance of one-second windows from `percent`, in points.
pub fn p95_of_seconds(machine: &Machine, lane: usize, percent: f64) -> f64 {
    let mut errors: Vec<f64> = machine.seconds[1..]
        .windows(2)
        .map(|pair| ((pair[1][lane] - pair[0][lane]) as f64 / S as f64 * 100.0 - percent).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    errors[(errors.len() * 95).div_ceil(100) - 1]
}

/// Percent of the seconds `from..to` by slice.
pub fn by_slice(machine: &Machine, from: usize, to: u64) -> Vec<f64> {
    let to = to as usize;
    let slices = machine.lanes.iter().map(|lane| lane.slice + 1).max().unwrap_or(0);
    let mut shares = vec![0.0; slices];
    for (lane, it) in machine.lanes.iter().enumerate() {
        let work = machine.seconds[to - 1][lane] - machine.seconds[from - 1][lane];
        shares[it.slice] += work as f64 / ((to - from) as u64 * S) as f64 * 100.0;
    }
    shares
}
