//! Memory that this process shares with others, and how often it has it. The account notes only
//! whether it has (`native/account/src/shared.rs`), and has to say what the table here says: so
//! changes are made one at a time.

use std::sync::Mutex;

use driver_sys::cuda::CUdevice;
use hami_account::descriptor::Mark;
use vgpu_driver::guard::lock;

use crate::cards;
use crate::limited::{Card, Limited};
use crate::table::{Entry, Table, Then};

static HELD: Table<Held> = Table::new();
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy)]
struct Held {
    /// The number by which the account lists the memory.
    key: u64,
    /// The bytes that are charged in layers whose accounts had no room for an entry.
    bytes: u64,
    times: u32,
    device: CUdevice,
}

// SAFETY: numbers; the account calls nothing 0.
unsafe impl Entry for Held {
    fn key(&self) -> u64 {
        self.key
    }
}

/// The slice is charged from now on for memory that this process has exported and is charged
/// `bytes` for. Returns whether every layer has room for it: importers do not find it in the
/// others. `None` if nothing has changed.
pub(crate) fn share(
    limited: &Limited,
    card: &Card,
    key: u64,
    bytes: u64,
    mark: Option<&Mark>,
) -> Option<bool> {
    let _one_at_a_time = lock(&ONE_AT_A_TIME);
    HELD.insert(Held { key, bytes, times: 1, device: card.device }).ok()?;
    Some(limited.share(card, key, bytes, mark))
}

/// This process is about to import memory. Returns false if the slice is not charged for it.
pub(crate) fn import(limited: &Limited, key: u64) -> bool {
    let _one_at_a_time = lock(&ONE_AT_A_TIME);
    let once_more = |it: &mut Held| {
        it.times += 1;
        Then::Keep
    };
    if HELD.change(key, once_more).is_some() {
        return true;
    }
    if !limited.import(key) {
        return false;
    }
    let is_noted = HELD.insert(Held { key, bytes: 0, times: 1, device: -1 }).is_ok();
    if !is_noted {
        limited.close_shared(None, key, 0);
    }
    is_noted
}

/// What [`share`] or [`import`] has noted has ended.
pub(crate) fn close(limited: &Limited, key: u64) {
    let _one_at_a_time = lock(&ONE_AT_A_TIME);
    let once_less = |it: &mut Held| {
        it.times -= 1;
        if it.times == 0 { Then::Remove } else { Then::Keep }
    };
    if let Some((held, Then::Remove)) = HELD.change(key, once_less) {
        limited.close_shared(cards::of_device(limited, held.device), key, held.bytes);
    }
}
