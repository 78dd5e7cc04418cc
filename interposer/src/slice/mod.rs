//! The slice this process lives in: which limits hold, and the charge against every level of them.
//!
//! Decided once, at the first CUDA or NVML call, from the files beside the library and from the
//! environment (docs/architecture.md, "How the library finds its slice").

mod departure;
mod level;
mod own;
mod seat;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use driver_sys::cuda::CUdevice;
use hami_account::Living;
use hami_limits::{NO_LIMIT, VariableShare, Variables};

use crate::roads::objects;
use crate::say::Once;
use crate::settings::Settings;
use crate::settled::Settled;
use level::{Asked, Level};
pub(crate) use seat::Seat;

/// More `hami run` inside `hami run` than anybody needs; each level is charged for each allocation.
pub(crate) const MAX_LEVELS: usize = 8;

// Row i of the page is row i of the account.
const _: () = assert!(hami_limits::page::MAX_ROWS == hami_account::CARDS);

/// What holds for this process.
#[allow(clippy::large_enum_variant)] // there is one, for the life of the process
pub(crate) enum Slice {
    /// No limit was set: calls go to the driver.
    Open,
    /// Limits hold.
    Limited(Limited),
    /// Limits were set that cannot be enforced, for this reason; CUDA is refused.
    Refused(String),
}

/// The slice, decided at the first call.
#[inline]
pub(crate) fn current() -> &'static Slice {
    static SLICE: Settled<Slice> = Settled::new();
    SLICE.get_or_decide(|| decide().unwrap_or_else(Slice::Refused))
}

fn decide() -> Result<Slice, String> {
    let settings = Settings::read().map_err(|error| error.to_string())?;
    let mut directories: Vec<PathBuf> = managed_directory().into_iter().collect();
    directories.extend(settings.slices.iter().cloned());
    if directories.len() > MAX_LEVELS {
        return Err(format!(
            "HAMI_SLICE: {} slices inside one another are refused: at most {MAX_LEVELS} hold; end \
             some `hami run`",
            directories.len()
        ));
    }
    let mut levels = Vec::new();
    for directory in &directories {
        levels.push(Level::open(directory)?);
    }
    if levels.is_empty() {
        if !settings.variables.set_a_limit() {
            return Ok(Slice::Open);
        }
        levels.push(own::level(&settings)?);
    }
    let index = if directories.is_empty() { Index::Place } else { Index::Row };
    Ok(Slice::Limited(Limited { levels, variables: settings.variables, index }))
}

/// The directory of the library itself, if a limits page lies there: how a container is told.
fn managed_directory() -> Option<PathBuf> {
    let library = objects::path_of(managed_directory as *const () as usize)?;
    let directory = Path::new(&library).parent()?.to_owned();
    // Either file alone is a slice, a damaged one, and CUDA is refused.
    let either = directory.join("limits").exists() || directory.join("account").exists();
    either.then_some(directory)
}

/// Which card the `i` of `CUDA_DEVICE_MEMORY_LIMIT_<i>` names.
enum Index {
    /// The i-th row of the innermost limits page.
    Row,
    /// Without a page: the i-th card of the machine.
    Place,
}

/// A card as the slice knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    /// The driver's number for it in this process; -1 if it was found through NVML.
    pub(crate) device: CUdevice,
    /// Its row in each level; `None` where that level has none, so that nothing may be used.
    pub(crate) rows: [Option<u8>; MAX_LEVELS],
    /// The limit that the environment sets for it, in bytes.
    pub(crate) environment: u64,
    /// The share that the environment sets for it.
    pub(crate) share: Option<VariableShare>,
}

/// The levels of limits that hold, outermost first; there is at least one.
pub(crate) struct Limited {
    levels: Vec<Level>,
    variables: Variables,
    index: Index,
}

impl Limited {
    /// A card as this slice knows it: by the driver's number for it, its UUID, and, where it can be
    /// told, its place among all cards of the machine.
    pub(crate) fn card(&self, device: CUdevice, uuid: &str, place: Option<usize>) -> Card {
        let mut rows = [None; MAX_LEVELS];
        for (row, level) in rows.iter_mut().zip(&self.levels) {
            *row = level.row_of(uuid);
        }
        let index = match self.index {
            Index::Row => self.innermost(&rows).map(|(_, row)| row),
            Index::Place => place,
        };
        let environment = self.variables.memory(index).unwrap_or(NO_LIMIT);
        let share = self.variables.share(index);
        Card { device, rows, environment, share }
    }

    /// This process's seats at a card, outermost first, as far as the levels have it.
    pub(crate) fn seats(&'static self, card: &Card) -> Vec<Seat> {
        let innermost = self.levels.len() - 1;
        let levels = self.levels.iter().zip(card.rows).enumerate();
        levels
            .filter_map(|(index, (level, row))| {
                let share = card.share.filter(|_| index == innermost);
                Some(Seat::new(level, usize::from(row?), share))
            })
            .collect()
    }

    /// The words that say whether a launch has to ask, where two words can say it: `None` where slices
    /// lie inside one another, or a variable sets a share.
    pub(crate) fn regulated_words(&self) -> Option<[Option<&AtomicU32>; 2]> {
        let sets_share = self.variables.share(None).is_some();
        match self.levels.as_slice() {
            _ if sets_share => None,
            // No page: no share, and nobody who could set one.
            [level] => level.regulated_words().or(Some([None, None])),
            _ => None,
        }
    }

    /// Makes this process a member of every level, so that it is listed before it holds anything.
    /// An account that is full is no reason to refuse anything yet.
    #[cold]
    pub(crate) fn join(&self) {
        self.levels.iter().for_each(Level::join);
    }

    /// Whether no level leaves a card of the machine out.
    pub(crate) fn has_every_card(&self) -> bool {
        self.levels.iter().all(Level::has_every_card)
    }

    /// Whether the card with this UUID is part of the slice: of every level.
    pub(crate) fn has(&self, uuid: &str) -> bool {
        self.levels.iter().all(|level| level.row_of(uuid).is_some())
    }

    /// The living processes of the innermost slice, and what each holds of a card.
    pub(crate) fn living(&self, card: &Card) -> impl Iterator<Item = Living> {
        let row = self.innermost(&card.rows).map(|(_, row)| row);
        self.levels.last().into_iter().flat_map(move |level| level.living(row))
    }

    /// Charges every level or none.
    ///
    /// What one level refuses must not show in another, not even for a moment: it could stand in
    /// the way of a neighbour. So the outer levels are asked before anything is charged, and then
    /// charged from the inside out.
    #[inline]
    pub(crate) fn charge(&self, card: &Card, bytes: u64) -> bool {
        self.charge_levels(card, bytes, Asked::ByTheProgram)
    }

    /// As [`Self::charge`]; a refusal is none that the program sees, and not counted.
    pub(crate) fn try_charge(&self, card: &Card, bytes: u64) -> bool {
        self.charge_levels(card, bytes, Asked::ByUs)
    }

    fn charge_levels(&self, card: &Card, bytes: u64, asked: Asked) -> bool {
        if !self.covers(card) {
            static OUTSIDE: Once = Once::new();
            OUTSIDE.line(format_args!(
                "device {} is a card outside this slice and has no memory here; \
                 CUDA_VISIBLE_DEVICES counts the cards of the machine, so name the slice's by UUID \
                 (see `hami devices`)",
                card.device
            ));
            return false;
        }
        let innermost = self.levels.len() - 1;
        let admitted = (0..innermost).all(|index| {
            self.at(card, index)
                .is_some_and(|(level, row)| level.admits(row, bytes, level.limit(row), asked))
        });
        if !admitted {
            return false;
        }
        for index in (0..=innermost).rev() {
            let charged = self.at(card, index).is_some_and(|(level, row)| {
                level.charge(row, bytes, self.limit_at(card, index, row), asked)
            });
            if !charged {
                self.uncharge_levels(card, bytes, index + 1..=innermost);
                return false;
            }
        }
        true
    }

    /// Whether every level has a row for the card.
    fn covers(&self, card: &Card) -> bool {
        self.rows(card).all(|(_, row)| row.is_some())
    }

    /// Gives back what [`Self::charge`] took.
    pub(crate) fn uncharge(&self, card: &Card, bytes: u64) {
        self.uncharge_levels(card, bytes, 0..=self.levels.len() - 1);
    }

    fn uncharge_levels(&self, card: &Card, bytes: u64, levels: RangeInclusive<usize>) {
        for (level, row) in levels.filter_map(|index| self.at(card, index)) {
            level.uncharge(row, bytes);
        }
    }

    /// The limit in force: the least over all levels; 0 where a level does not have the card.
    pub(crate) fn limit(&self, card: &Card) -> u64 {
        self.least(card, |index, _, row| self.limit_at(card, index, row))
    }

    /// What may still be taken: the least over all levels.
    pub(crate) fn left(&self, card: &Card) -> u64 {
        self.least(card, |index, level, row| {
            level.reap();
            self.limit_at(card, index, row).saturating_sub(level.used(row))
        })
    }

    /// The limit of one level. What the environment says is said of this process's own slice, not
    /// of those around it, in which others live as well.
    #[inline]
    fn limit_at(&self, card: &Card, index: usize, row: usize) -> u64 {
        let limit = self.levels.get(index).map_or(0, |level| level.limit(row));
        if index + 1 == self.levels.len() { limit.min(card.environment) } else { limit }
    }

    /// What the processes of the innermost slice hold.
    pub(crate) fn used(&self, card: &Card) -> u64 {
        self.innermost(&card.rows).map_or(0, |(level, row)| level.used(row))
    }

    fn rows<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = (&'a Level, Option<usize>)> {
        self.levels.iter().zip(card.rows.iter().map(|row| row.map(usize::from)))
    }

    fn at(&self, card: &Card, index: usize) -> Option<(&Level, usize)> {
        let row = *card.rows.get(index)?;
        Some((self.levels.get(index)?, usize::from(row?)))
    }

    fn innermost(&self, rows: &[Option<u8>; MAX_LEVELS]) -> Option<(&Level, usize)> {
        let level = self.levels.last()?;
        let row = *rows.get(self.levels.len() - 1)?;
        Some((level, usize::from(row?)))
    }

    fn least(&self, card: &Card, of: impl Fn(usize, &Level, usize) -> u64) -> u64 {
        self.rows(card)
            .enumerate()
            .map(|(index, (level, row))| row.map_or(0, |row| of(index, level, row)))
            .min()
            .unwrap_or(NO_LIMIT)
    }
}
