//! The calling thread's cache: the stream of its last launch, with the context and the card.
//!
//! Asking the driver for them takes longer than all else that a limited launch does.

use std::cell::Cell;

use crate::card::CardLimiter;
use crate::contexts;

type Place = (usize, &'static CardLimiter);

/// The last stream that the thread launched on, where it is, and [`contexts::age`] then.
#[derive(Clone, Copy)]
struct Known {
    handle: usize,
    place: Place,
    age: u64,
}

thread_local! {
    static LAST: Cell<Option<Known>> = const { Cell::new(None) };
}

/// The context and the card of a stream; `find` asks the driver.
pub(crate) fn place(handle: usize, find: impl FnOnce() -> Option<Place>) -> Option<Place> {
    let age = contexts::age();
    let last = LAST.with(Cell::get);
    if let Some(known) = last.filter(|known| known.handle == handle && known.age == age) {
        return Some(known.place);
    }
    let place = find()?;
    LAST.with(|last| last.set(Some(Known { handle, place, age })));
    Some(place)
}

/// The thread has another current context, in which the same handles mean other streams.
pub(crate) fn forget() {
    LAST.with(|last| last.set(None));
}
