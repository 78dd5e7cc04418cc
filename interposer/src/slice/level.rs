//! One level of limits: a limits page and the account beside it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use hami_account::{Account, ComputeWords, Living, Member, Owed};
use hami_limits::grants::GrantsView;
use hami_limits::{LimitsView, NO_LIMIT, Regime};

use crate::say::Once;

use super::departure::departed;
use super::own;

/// A slice directory, opened.
pub(crate) struct Level {
    limits: Limits,
    /// What the coordinator grants, where there may be one.
    grants: Option<GrantsView>,
    /// Never unmapped: memberships refer to it as long as the process lives.
    account: &'static Account,
    /// This process's place in the account, taken in cuInit, or else at the first charge.
    member: AtomicPtr<Joined>,
}

/// Where a level's limits are written.
pub(super) enum Limits {
    /// In its page.
    Page(LimitsView),
    /// In the environment alone; the page at this path only says which card is which row.
    Environment(PathBuf),
}

/// Who asks for memory: what is refused to the program counts as a refusal, what we only try does not.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    ByTheProgram,
    ByUs,
}

/// A membership and the fork generation that it belongs to.
struct Joined {
    generation: u32,
    member: Member<'static>,
}

impl Level {
    pub(super) fn open(directory: &Path) -> Result<Self, String> {
        let view = LimitsView::open(&directory.join("limits")).map_err(|e| e.to_string())?;
        Self::with(Limits::Page(view), directory)
    }

    pub(super) fn with(limits: Limits, directory: &Path) -> Result<Self, String> {
        let account = Account::attach_with(&directory.join("account"), departed)
            .map_err(|e| e.to_string())?;
        let account = Box::leak(Box::new(account));
        // Slices that are older than turns, or that only variables make, have no such page.
        let grants = GrantsView::open(&directory.join("grants")).ok();
        Ok(Self { limits, grants, account, member: AtomicPtr::default() })
    }

    /// Whether every card of the machine is part of it: only a page leaves cards out.
    pub(super) fn has_every_card(&self) -> bool {
        matches!(self.limits, Limits::Environment(_))
    }

    /// The row of a card; `None` if this level does not have it.
    pub(super) fn row_of(&self, uuid: &str) -> Option<u8> {
        let row = match &self.limits {
            Limits::Page(view) => view.row_of(uuid),
            Limits::Environment(page) => own::row_of(page, uuid),
        };
        row.and_then(|row| u8::try_from(row).ok())
    }

    #[inline]
    pub(super) fn limit(&self, row: usize) -> u64 {
        match &self.limits {
            Limits::Page(view) => view.memory_limit(row),
            Limits::Environment(_) => NO_LIMIT,
        }
    }

    /// The share that the page gives a row, now.
    pub(super) fn regime(&self, row: usize) -> Regime {
        match &self.limits {
            Limits::Page(view) => view.regime(row),
            Limits::Environment(_) => Regime::default(),
        }
    }

    /// The words that say whether launches in this slice have to ask; `None` where no page says it.
    pub(super) fn regulated_words(&self) -> Option<[Option<&AtomicU32>; 2]> {
        match &self.limits {
            Limits::Page(view) => {
                Some([Some(view.regulated()), self.grants.as_ref().map(GrantsView::regulated)])
            }
            Limits::Environment(_) => None,
        }
    }

    /// What the coordinator grants, where there may be one.
    pub(super) fn grants(&self) -> Option<&GrantsView> {
        self.grants.as_ref()
    }

    /// What the members say of their use of a row, by slot.
    pub(super) fn computing(&self, row: usize) -> impl Iterator<Item = (u16, &ComputeWords)> {
        let members = if row < hami_account::CARDS { self.account.high_water() } else { 0 };
        (0..members).map(move |slot| (slot as u16, self.account.compute(slot, row)))
    }

    /// The debt that processes which are gone have left behind on a row.
    pub(super) fn left_behind(&self, row: usize, now: u64) -> Owed {
        if row < hami_account::CARDS { self.account.left_behind(row, now) } else { Owed::default() }
    }

    #[inline]
    pub(super) fn used(&self, row: usize) -> u64 {
        self.account.used(row)
    }

    /// The living members that this process can name, and what each holds of a row, if there is one.
    pub(super) fn living(&self, row: Option<usize>) -> impl Iterator<Item = Living> {
        self.account.living(row.unwrap_or(hami_account::CARDS))
    }

    /// Lets go of what the dead held, as far as that may be; at most every 10 ms it costs anything.
    #[inline]
    pub(super) fn reap(&self) {
        self.account.reap_dead();
    }

    #[inline]
    pub(super) fn charge(&self, row: usize, bytes: u64, limit: u64, asked: Asked) -> bool {
        self.member().is_some_and(|member| {
            let charged = match asked {
                Asked::ByTheProgram => member.charge(row, bytes, limit),
                Asked::ByUs => member.try_charge(row, bytes, limit),
            };
            charged.is_ok()
        })
    }

    /// Whether a charge would not be refused now.
    pub(super) fn admits(&self, row: usize, bytes: u64, limit: u64, asked: Asked) -> bool {
        self.member().is_some_and(|member| {
            let admitted = match asked {
                Asked::ByTheProgram => member.admits(row, bytes, limit),
                Asked::ByUs => member.would_admit(row, bytes, limit),
            };
            admitted.is_ok()
        })
    }

    #[inline]
    pub(super) fn uncharge(&self, row: usize, bytes: u64) {
        if let Some(member) = self.member() {
            member.uncharge(row, bytes);
        }
    }

    /// Becomes a member if that can be had at once. Where it cannot, the first charge asks again,
    /// with more patience, and says why it was refused.
    pub(super) fn join(&self) {
        if let Err(seen) = self.joined()
            && let Ok(Some(member)) = self.account.try_join()
        {
            self.keep(member, seen);
        }
    }

    /// This process's membership, joined now if it is not yet one, or a child of fork.
    #[inline]
    pub(super) fn member(&self) -> Option<&Member<'static>> {
        self.joined().or_else(|seen| self.join_for_a_charge(seen).ok_or(())).ok()
    }

    /// This process's membership, or what stands in its place.
    #[inline]
    fn joined(&self) -> Result<&Member<'static>, *mut Joined> {
        let seen = self.member.load(Ordering::Acquire);
        // SAFETY: what is stored here is leaked, so it outlives every reader.
        match unsafe { seen.as_ref() } {
            Some(joined) if joined.generation == hami_account::fork::generation() => {
                Ok(&joined.member)
            }
            _ => Err(seen),
        }
    }

    #[cold]
    fn join_for_a_charge(&self, seen: *mut Joined) -> Option<&Member<'static>> {
        match self.account.join() {
            Ok(member) => self.keep(member, seen),
            Err(error) => {
                // A program may go on asking, as it may after any refusal.
                static FULL: Once = Once::new();
                FULL.line(error);
                None
            }
        }
    }

    /// Makes a membership this process's, unless another thread has stored one since `seen`.
    #[cold]
    fn keep(&self, member: Member<'static>, seen: *mut Joined) -> Option<&Member<'static>> {
        let generation = hami_account::fork::generation();
        let mine = Box::into_raw(Box::new(Joined { generation, member }));
        let stored = self.member.compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Acquire);
        if let Err(theirs) = stored {
            // Another thread was first; our slot goes back.
            // SAFETY: nobody else has seen `mine`; what is stored is leaked and of this generation.
            unsafe {
                drop(Box::from_raw(mine));
                return theirs.as_ref().map(|joined| &joined.member);
            }
        }
        // SAFETY: stored above, never freed (a membership ends with its process).
        unsafe { mine.as_ref() }.map(|joined| &joined.member)
    }
}
