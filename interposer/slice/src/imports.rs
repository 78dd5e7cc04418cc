//! How often this process has imported memory that other processes are charged for. The account notes
//! only whether it has.

use std::sync::Mutex;

use driver_sys::cuda::CUDA_ERROR_OUT_OF_MEMORY;
use hami_account::Import;
use vgpu_driver::guard::lock;
use vgpu_driver::real::Outcome;

use crate::limited::{Card, Limited};
use crate::table::{Entry, Full, Table, Then};

static IMPORTS: Table<Times> = Table::new();
/// So that the account has what the table says.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy)]
struct Times {
    /// The number by which the account lists the memory.
    id: u64,
    times: u32,
}

// SAFETY: numbers; the account calls nothing 0.
unsafe impl Entry for Times {
    fn key(&self) -> u64 {
        self.id
    }
}

/// Notes an import.
pub(crate) fn open(limited: &Limited, card: &Card, id: u64) -> Outcome<Import> {
    let _one_at_a_time = lock(&ONE_AT_A_TIME);
    let once_more = |it: &mut Times| {
        it.times += 1;
        Then::Keep
    };
    if IMPORTS.change(id, once_more).is_some() {
        return Ok(Import::Charged);
    }
    let import = limited.import(card, id);
    if import == Import::Charged {
        IMPORTS.insert(Times { id, times: 1 }).map_err(|Full| {
            limited.close_import(card, id);
            CUDA_ERROR_OUT_OF_MEMORY
        })?;
    }
    Ok(import)
}

/// An import has ended.
pub(crate) fn close(limited: &Limited, card: &Card, id: u64) {
    let _one_at_a_time = lock(&ONE_AT_A_TIME);
    let once_less = |it: &mut Times| {
        it.times -= 1;
        if it.times == 0 { Then::Remove } else { Then::Keep }
    };
    if let Some((_, Then::Remove)) = IMPORTS.change(id, once_less) {
        limited.close_import(card, id);
    }
}
