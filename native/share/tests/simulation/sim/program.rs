//! The simulated programs.

use hami_share::limiter::{BATCH_NS, batch_size};

/// A kind of work.
#[derive(Clone, Debug)]
pub enum Program {
    /// Launches without ever waiting, kernels of these lengths one after the other.
    Saturate(Vec<u64>),
    /// Launches one kernel, waits for it, and computes on the host.
    Sync { kernel: u64, gap: u64 },
    /// A fixed amount of work at the start of each period.
    Bursty { period: u64, busy: u64 },
    /// Saturates with kernels of 1 ms, and launches one long kernel at a time.
    Long { at: u64, ns: u64 },
    /// Saturates with kernels that spin until all `members` of the group run theirs.
    Meet { ns: u64, group: u64, members: usize },
}

/// The next action of a program.
#[derive(Clone, Debug)]
pub enum Action {
    Launch(Vec<Launch>),
    WaitForAll,
    SleepUntil(u64),
}

#[derive(Clone, Debug)]
pub struct Launch {
    pub ns: u64,
    pub meets: Option<(u64, usize)>,
}

/// A program and its progress.
#[derive(Debug)]
pub struct Running {
    program: Program,
    launched: usize,
    step: usize,
    began: u64,
    /// The duration of each burst.
    pub bursts: Vec<u64>,
}

impl Running {
    pub fn new(program: Program) -> Self {
        Self { program, launched: 0, step: 0, began: 0, bursts: Vec::new() }
    }

    pub fn next(&mut self, now: u64) -> Action {
        self.step += 1;
        match &mut self.program {
            Program::Saturate(kernels) => {
                let ns = kernels[self.launched % kernels.len()];
                self.launched += 1;
                batch(ns, batch_size(Some(ns), BATCH_NS))
            }
            Program::Sync { kernel, gap } => match self.step % 3 {
                1 => batch(*kernel, 1),
                2 => Action::WaitForAll,
                _ => Action::SleepUntil(now + *gap),
            },
            Program::Bursty { period, busy } => {
                if self.step == 1 {
                    self.began = now;
                }
                let batches = (*busy / 1_000_000).max(1) as usize;
                match self.step {
                    step if step <= batches => batch(*busy / batches as u64, 1),
                    step if step == batches + 1 => Action::WaitForAll,
                    _ => {
                        self.bursts.push(now - self.began);
                        self.step = 0;
                        Action::SleepUntil((self.began / *period + 1) * *period)
                    }
                }
            }
            Program::Long { at, ns } if now >= *at && self.launched == 0 => {
                self.launched = 1;
                batch(*ns, 1)
            }
            Program::Long { .. } => batch(1_000_000, 2),
            Program::Meet { ns, group, members } => {
                let ns = *ns;
                let launches = (0..batch_size(Some(ns), BATCH_NS)).map(|_| {
                    self.launched += 1;
                    Launch { ns, meets: Some(((*group << 32) + self.launched as u64, *members)) }
                });
                Action::Launch(launches.collect())
            }
        }
    }
}

/// The kernels of a context run one after the other, so several short ones are joined to one.
fn batch(ns: u64, count: u32) -> Action {
    Action::Launch(vec![Launch { ns: ns * u64::from(count), meets: None }])
}
