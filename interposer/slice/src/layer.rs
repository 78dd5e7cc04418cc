//! One layer of limits: a slice directory with its limits page, its account and its grants page.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use hami_account::{Account, ComputeWords, Dead, Debt, Living, Member, Requester};
use hami_limits::grants::GrantsView;
use hami_limits::{FileError, LimitsView, NO_LIMIT, Regime, Row};
use vgpu_driver::report::Once;

use crate::departure::departed;
use crate::environment;

/// A slice directory, opened.
pub(crate) struct Layer {
    limits: Limits,
    /// The coordinator's grants; `None` if there is no grants page. It is never unmapped, because
    /// the account refers to it.
    grants: Option<&'static GrantsView>,
    /// It is never unmapped: memberships refer to it as long as the process lives.
    account: &'static Account,
    /// This process's membership. The process joins in cuInit, or else at the first charge.
    member: AtomicPtr<Joined>,
}

/// The source of a layer's limits.
enum Limits {
    /// Its limits page.
    Page(LimitsView),
    /// Only the environment. The page at this path only assigns rows to cards.
    Environment(PathBuf),
}

/// A membership and the fork generation that it belongs to.
struct Joined {
    generation: u32,
    member: Member<'static>,
}

impl Layer {
    /// The layer of a directory that has a limits page.
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        let view = LimitsView::open(&directory.join("limits")).map_err(|e| unreadable(&e))?;
        Self::with(Limits::Page(view), directory)
    }

    /// The layer whose limits are in the environment; see [`environment::create`].
    pub(crate) fn of_environment(directory: &Path) -> Result<Self, String> {
        Self::with(Limits::Environment(directory.join("limits")), directory)
    }

    fn with(limits: Limits, directory: &Path) -> Result<Self, String> {
        // Slices that the library creates from variables have no grants page.
        let grants = GrantsView::open(&directory.join("grants")).ok();
        let grants = grants.map(|grants| &*Box::leak(Box::new(grants)));
        let departed = move |dead: &Dead| departed(dead, grants);
        let account = Account::attach_with(&directory.join("account"), departed)
            .map_err(|e| unreadable(&e))?;
        let account = Box::leak(Box::new(account));
        Ok(Self { limits, grants, account, member: AtomicPtr::default() })
    }

    /// Whether every card of the machine is part of this layer. Only a limits page can leave cards
    /// out.
    pub(crate) fn has_every_card(&self) -> bool {
        matches!(self.limits, Limits::Environment(_))
    }

    /// The row of a card; `None` if the card is not part of this layer.
    pub(crate) fn row_of(&self, uuid: &str) -> Option<u8> {
        let row = match &self.limits {
            Limits::Page(view) => view.row_of(uuid),
            Limits::Environment(page) => environment::row_of(page, uuid),
        };
        row.and_then(|row| u8::try_from(row).ok())
    }

    /// The rows that the limits page had when it was opened.
    pub(crate) fn rows(&self) -> &[Row] {
        match &self.limits {
            Limits::Page(view) => view.rows(),
            Limits::Environment(_) => &[],
        }
    }

    #[inline]
    pub(crate) fn limit(&self, row: usize) -> u64 {
        match &self.limits {
            Limits::Page(view) => view.memory_limit(row),
            Limits::Environment(_) => NO_LIMIT,
        }
    }

    /// Bytes that the driver takes for a context on the card of a row; 0 if unknown.
    pub(crate) fn context_memory(&self, row: usize) -> u64 {
        self.rows().get(row).and_then(|row| row.context_memory).unwrap_or(0)
    }

    /// What large allocations on the card of a row are rounded up to; 0 if they are exact.
    pub(crate) fn granule(&self, row: usize) -> u64 {
        self.rows().get(row).and_then(|row| row.granule).unwrap_or(0).into()
    }

    /// The share, mode and priority of a row, now.
    pub(crate) fn regime(&self, row: usize) -> Regime {
        match &self.limits {
            Limits::Page(view) => view.regime(row),
            Limits::Environment(_) => Regime::default(),
        }
    }

    /// The words of the limits page and the grants page that are not 0 while launches need
    /// admission; `None` without a page.
    pub(crate) fn regulated_words(&self) -> Option<[Option<&AtomicU32>; 2]> {
        match &self.limits {
            Limits::Page(view) => {
                Some([Some(view.regulated()), self.grants.map(GrantsView::regulated)])
            }
            Limits::Environment(_) => None,
        }
    }

    /// The grants page, if there is one.
    pub(crate) fn grants(&self) -> Option<&GrantsView> {
        self.grants
    }

    /// The members' reports about their use of a row, by slot.
    pub(crate) fn computing(&self, row: usize) -> impl Iterator<Item = (u16, &ComputeWords)> {
        let members = if row < hami_account::CARDS { self.account.high_water() } else { 0 };
        (0..members).map(move |slot| (slot as u16, self.account.compute(slot, row)))
    }

    /// The debt on a row of processes that have exited.
    pub(crate) fn unpaid_debt(&self, row: usize, now: u64) -> Debt {
        if row < hami_account::CARDS { self.account.unpaid_debt(row, now) } else { Debt::default() }
    }

    /// The bytes of a row that a request would find in use.
    #[inline]
    pub(crate) fn in_use(&self, row: usize) -> u64 {
        self.account.in_use(row)
    }

    /// The living members in this PID namespace, and the bytes that each holds of a row, if there
    /// is one.
    pub(crate) fn living(&self, row: Option<usize>) -> impl Iterator<Item = Living> {
        self.account.living(row.unwrap_or(hami_account::CARDS))
    }

    /// Releases the bytes of dead processes that the driver has freed. If it was called less than
    /// 10 ms ago, in any process, it does nothing.
    #[inline]
    pub(crate) fn reap(&self) {
        match self.joined() {
            Ok(member) => member.reap_dead(),
            // A program that only asks NVML is no member.
            Err(_) => self.account.reap_dead(),
        };
    }

    #[inline]
    pub(crate) fn charge(&self, row: usize, bytes: u64, limit: u64, requester: Requester) -> bool {
        self.member().is_some_and(|member| member.charge(row, bytes, limit, requester).is_ok())
    }

    /// Whether a charge would be admitted now.
    pub(crate) fn admits(&self, row: usize, bytes: u64, limit: u64, requester: Requester) -> bool {
        self.member().is_some_and(|member| member.admits(row, bytes, limit, requester).is_ok())
    }

    #[inline]
    pub(crate) fn uncharge(&self, row: usize, bytes: u64) {
        if let Some(member) = self.member() {
            member.uncharge(row, bytes);
        }
    }

    /// Joins the account if that needs no waiting. Otherwise the first charge tries again, waits,
    /// and reports an error.
    pub(crate) fn join(&self) {
        if let Err(seen) = self.joined()
            && let Ok(Some(member)) = self.account.try_join()
        {
            self.keep(member, seen);
        }
    }

    /// This process's membership. Joins now if it has none, also in a child of `fork`.
    #[inline]
    pub(crate) fn member(&self) -> Option<&Member<'static>> {
        self.joined().or_else(|seen| self.join_for_a_charge(seen).ok_or(())).ok()
    }

    /// This process's membership, or the pointer that is stored instead.
    #[inline]
    fn joined(&self) -> Result<&Member<'static>, *mut Joined> {
        let seen = self.member.load(Ordering::Acquire);
        // SAFETY: a stored value is leaked, so it outlives every reader.
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
                // A program may retry many times, but one line is enough.
                static FULL: Once = Once::new();
                FULL.line(error);
                None
            }
        }
    }

    /// Stores the membership of this process, unless another thread has stored one since `seen`.
    #[cold]
    fn keep(&self, member: Member<'static>, seen: *mut Joined) -> Option<&Member<'static>> {
        let generation = hami_account::fork::generation();
        let ours = Box::into_raw(Box::new(Joined { generation, member }));
        let stored = self.member.compare_exchange(seen, ours, Ordering::AcqRel, Ordering::Acquire);
        if let Err(theirs) = stored {
            // Another thread was first; dropping ours frees its slot.
            // SAFETY: only this thread has `ours`; the stored one is leaked and of this generation.
            unsafe {
                drop(Box::from_raw(ours));
                return theirs.as_ref().map(|joined| &joined.member);
            }
        }
        // SAFETY: stored above, never freed (a membership ends with its process).
        unsafe { ours.as_ref() }.map(|joined| &joined.member)
    }
}

/// The error of a slice's file that cannot be read, with its fix.
fn unreadable(error: &FileError) -> String {
    match error.kind() {
        // A denied system call, which the message names with its fix.
        Some(ErrorKind::Unsupported) => error.to_string(),
        _ => format!(
            "{error}; its slice was removed or damaged: start the program, or its container, again"
        ),
    }
}
