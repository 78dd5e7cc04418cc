//! The programs: what a thread does next.

use crate::engine::{Kernel, Meeting};
use crate::{MS, Prng, US};

/// The next step of a thread.
#[derive(Clone, Debug)]
pub enum Action {
    Launch {
        stream: usize,
        kernel: Kernel,
    },
    /// For all of the thread's work.
    Wait,
    SleepUntil(u64),
    /// A flag of the host that a kernel waits for.
    Open(u64),
    End,
}

#[derive(Clone, Debug)]
pub enum Program {
    /// Kernels of these lengths one after the other, without a wait.
    Saturate(Vec<u64>),
    /// A training step: so many kernels, then a wait, then the host.
    Steps { ns: u64, kernels: usize, host: u64 },
    /// Work at the start of each period.
    Bursty { period: u64, busy: u64 },
    /// Requests of `kernels` that arrive at random, for `load` percent of the card.
    Server { ns: u64, kernels: usize, load: u64, seed: u64 },
    /// Requests that arrive at random: a prefill, and then tokens with the host between them.
    Chat { prefill: u64, tokens: usize, token: u64, host: u64, load: u64, seed: u64 },
    /// Kernels that spin until all members of the group run theirs.
    Meet { ns: u64, group: u64, members: usize },
    /// The same by one thread, in pairs on two streams.
    Pairs { ns: u64 },
    /// A kernel that spins until launches behind it have been made, by a launch or by the host.
    Gates { ns: u64, behind: usize, rounds: usize, host: bool },
    /// Kernels on so many streams that all wait for each other.
    Circle { ns: u64, streams: usize, rounds: usize },
    /// Several streams with work all the time.
    Streams { ns: u64, streams: usize, fills: bool },
}

/// A program with its progress.
#[derive(Debug)]
pub struct Thread {
    pub program: Program,
    step: u64,
    launched: u64,
    arrived: u64,
    prng: Prng,
    /// The time of each step, request, or first kernel.
    pub took: Vec<u64>,
    /// The same of tokens.
    pub tokens: Vec<u64>,
    began: u64,
    unique: u64,
}

impl Thread {
    pub fn new(program: Program, unique: u64) -> Self {
        let seed = match program {
            Program::Server { seed, .. } | Program::Chat { seed, .. } => seed,
            _ => 1,
        };
        Self {
            program,
            step: 0,
            launched: 0,
            arrived: 0,
            prng: Prng(seed),
            took: Vec::new(),
            tokens: Vec::new(),
            began: 0,
            unique,
        }
    }

    fn meeting(&self, number: u64, members: usize) -> Meeting {
        ((self.unique << 40) + number, members)
    }

    /// The next arrival of requests of `work`, for `load` percent.
    fn arrive(&mut self, work: u64, load: u64) -> u64 {
        let mean = work * 100 / load;
        let uniform = (self.prng.below(1 << 30) + 1) as f64 / (1u64 << 30) as f64;
        self.arrived += (-uniform.ln() * mean as f64) as u64;
        self.arrived
    }

    #[expect(clippy::too_many_lines, reason = "a program is a few lines")]
    pub fn next(&mut self, now: u64) -> Action {
        let step = self.step;
        self.step += 1;
        let simple = |ns, stream| Action::Launch { stream, kernel: Kernel::new(ns, true, None) };
        match self.program.clone() {
            Program::Saturate(kernels) => {
                self.launched += 1;
                simple(kernels[(self.launched - 1) as usize % kernels.len()], 0)
            }
            Program::Steps { ns, kernels, host } => {
                let kernels = kernels as u64;
                match step {
                    0 => {
                        self.began = now;
                        simple(ns, 0)
                    }
                    step if step < kernels => simple(ns, 0),
                    step if step == kernels => Action::Wait,
                    _ => {
                        self.took.push(now - self.began);
                        self.step = 0;
                        Action::SleepUntil(now + host)
                    }
                }
            }
            Program::Bursty { period, busy } => {
                let kernels = (busy / (500 * US)).max(1);
                match step {
                    0 => {
                        self.began = now;
                        simple(busy / kernels, 0)
                    }
                    step if step < kernels => simple(busy / kernels, 0),
                    step if step == kernels => Action::Wait,
                    _ => {
                        self.took.push(now - self.began);
                        self.step = 0;
                        Action::SleepUntil((self.began / period + 1) * period)
                    }
                }
            }
            Program::Server { ns, kernels, load, .. } => {
                let kernels = kernels as u64;
                match step {
                    0 => {
                        self.began = self.arrive(ns * kernels, load);
                        Action::SleepUntil(self.began)
                    }
                    step if step <= kernels => simple(ns, 0),
                    step if step == kernels + 1 => Action::Wait,
                    _ => {
                        self.took.push(now - self.began);
                        self.step = 0;
                        self.next(now)
                    }
                }
            }
            Program::Chat { prefill, tokens, token, host, load, .. } => {
                let (first, each) = (prefill / (500 * US), (token / (50 * US)).max(1));
                let wait = first + 1;
                let work = prefill + token * tokens as u64;
                match step {
                    0 => {
                        self.began = self.arrive(work, load);
                        Action::SleepUntil(self.began)
                    }
                    step if step <= first => simple(500 * US, 0),
                    step if step == wait => Action::Wait,
                    step => {
                        let at = step - wait - 1;
                        let (number, part) = (at / (each + 2), at % (each + 2));
                        if number == 0 && part == 0 {
                            self.took.push(now - self.began);
                            self.began = now;
                        } else if part == 0 {
                            self.tokens.push(now - self.began);
                            self.began = now;
                        }
                        if number >= tokens as u64 {
                            self.step = 0;
                            return self.next(now);
                        }
                        match part {
                            0 => Action::SleepUntil(now + host),
                            part if part <= each => simple(50 * US, 0),
                            _ => Action::Wait,
                        }
                    }
                }
            }
            Program::Meet { ns, group, members } => {
                self.launched += 1;
                let meets = Some(((group << 40) + (1 << 39) + self.launched, members));
                Action::Launch { stream: 0, kernel: Kernel::new(ns, false, meets) }
            }
            Program::Pairs { ns } => {
                let meets = Some(self.meeting(step / 2, 2));
                let stream = (step % 2) as usize;
                Action::Launch { stream, kernel: Kernel::new(ns, false, meets) }
            }
            Program::Gates { ns, behind, rounds, host } => {
                let behind = behind as u64;
                let (round, part) = (step / (behind + 3), step % (behind + 3));
                if round >= rounds as u64 {
                    return Action::End;
                }
                match part {
                    0 => {
                        let kernel = Kernel::new(20 * US, false, Some(self.meeting(round, 2)));
                        Action::Launch { stream: 0, kernel }
                    }
                    part if part <= behind => simple(ns, 0),
                    part if part == behind + 1 && host => Action::Open(self.meeting(round, 2).0),
                    part if part == behind + 1 => {
                        let kernel = Kernel::new(20 * US, false, Some(self.meeting(round, 2)));
                        Action::Launch { stream: 1, kernel }
                    }
                    _ => Action::Wait,
                }
            }
            Program::Circle { ns, streams, rounds } => {
                let all = streams as u64;
                if step / all >= rounds as u64 {
                    return if step / all == rounds as u64 && step.is_multiple_of(all) {
                        Action::Wait
                    } else {
                        Action::End
                    };
                }
                let kernel = Kernel::new(ns, false, Some(self.meeting(step / all, streams)));
                Action::Launch { stream: (step % all) as usize, kernel }
            }
            Program::Streams { ns, streams, fills } => {
                let stream = step as usize % streams;
                Action::Launch { stream, kernel: Kernel::new(ns, fills, None) }
            }
        }
    }
}

/// 1.5 ms of kernels, a wait, and 1 ms of the host.
pub const DECODE: Program = Program::Steps { ns: 50 * US, kernels: 30, host: MS };

pub fn kernels(ns: u64) -> Program {
    Program::Saturate(vec![ns])
}
