//! Faults: what a test makes go wrong on purpose, through the control socket.
//!
//! To add one, add a variant of [`Fault`], a command to [`crate::control`], and the place where it
//! takes effect:
//!
//! | fault | takes effect |
//! |---|---|
//! | [`Fault::OutOfMemory`] | in the ledger, before it grants an allocation |
//! | [`Fault::Slow`] | in the client, whose counters have a delay for every symbol |
//! | [`Fault::Xid`], [`Fault::Lost`], [`Fault::RemapFailed`] | in the client, beside its counters |

use std::sync::atomic::Ordering::Relaxed;
use stub_engine::counters::Counters;
use stub_engine::health::{CardSet, Xid};
use stub_engine::ledger::Ledger;
use stub_engine::symbols::Library;

/// A fault.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The `nth` allocation on `card` from now (1 is the next) is out of memory.
    OutOfMemory {
        /// The card's index.
        card: usize,
        /// Which allocation.
        nth: u64,
    },
    /// Every call of `symbol` takes `us` microseconds longer; 0 ends it.
    Slow {
        /// The symbol's name.
        symbol: String,
        /// Microseconds.
        us: u32,
    },
    /// An XID error on `card`, for the event sets of all NVML clients.
    Xid {
        /// The card's index.
        card: usize,
        /// The number of the error.
        xid: u32,
    },
    /// `card` is lost: it has fallen off the bus. Or it is back.
    Lost {
        /// The card's index.
        card: usize,
        /// Whether it is lost.
        is_lost: bool,
    },
    /// A row of the memory of `card` could not be remapped.
    RemapFailed {
        /// The card's index.
        card: usize,
        /// Whether it has such a row.
        has_failed: bool,
    },
}

impl Fault {
    /// The card that has it.
    fn card(&self) -> Option<usize> {
        match *self {
            Self::Slow { .. } => None,
            Self::OutOfMemory { card, .. }
            | Self::Xid { card, .. }
            | Self::Lost { card, .. }
            | Self::RemapFailed { card, .. } => Some(card),
        }
    }
}

/// The faults in force, but for those that the ledger counts down.
#[derive(Debug, Default)]
pub struct Faults {
    delays: Vec<Delay>,
    lost: CardSet,
    remap_failed: CardSet,
}

#[derive(Debug)]
struct Delay {
    library: Library,
    /// The symbol's number in its library.
    symbol: usize,
    us: u32,
}

impl Faults {
    /// Puts a fault into force, also in the clients that are connected.
    pub fn inject<'a>(
        &mut self,
        fault: Fault,
        ledger: &mut Ledger,
        clients: impl Iterator<Item = (Library, &'a Counters)>,
    ) -> Result<(), String> {
        let cards = ledger.cards.len();
        if let Some(card) = fault.card().filter(|card| *card >= cards) {
            return Err(format!("card {card} must be below {cards}"));
        }
        match fault {
            Fault::OutOfMemory { card, nth } => {
                if nth == 0 {
                    return Err("oom: nth 0 must be at least 1".into());
                }
                ledger.refuse_nth(card, nth);
            }
            Fault::Slow { symbol, us } => {
                let (library, symbol) = find_symbol(&symbol)
                    .ok_or_else(|| format!("slow: no library has a symbol {symbol:?}"))?;
                self.delays.retain(|delay| (delay.library, delay.symbol) != (library, symbol));
                self.delays.push(Delay { library, symbol, us });
            }
            Fault::Xid { card, xid } => {
                for (_, counters) in clients {
                    counters.health.xids.push(Xid { card, xid });
                }
                return Ok(());
            }
            Fault::Lost { card, is_lost } => self.lost.set(card, is_lost),
            Fault::RemapFailed { card, has_failed } => self.remap_failed.set(card, has_failed),
        }
        for (library, counters) in clients {
            self.apply(library, counters);
        }
        Ok(())
    }

    /// Puts the faults that last into a client's page.
    pub fn apply(&self, library: Library, counters: &Counters) {
        for delay in self.delays.iter().filter(|delay| delay.library == library) {
            counters.delays_us[delay.symbol].store(delay.us, Relaxed);
        }
        counters.health.lost.copy_from(&self.lost);
        counters.health.remap_failed.copy_from(&self.remap_failed);
    }
}

fn find_symbol(name: &str) -> Option<(Library, usize)> {
    [Library::Cuda, Library::Nvml].into_iter().find_map(|library| {
        let number = library.symbols().iter().position(|symbol| *symbol == name)?;
        Some((library, number))
    })
}
