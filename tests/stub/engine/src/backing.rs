//! Real bytes behind device addresses, so that copies are exact.
//!
//! A device pointer is an address in a reservation of this process. The reservation is neither
//! committed nor counted (`MAP_NORESERVE`), so a 140 GiB card costs only what is written to it; freed
//! pages go back. As with a real card, a forked child has none of it.
//!
//! Each card has two *spaces* of addresses: a wide one for everything, and a small one below 4 GiB
//! for the first version of the API, whose pointers have 32 bits.

use crate::MAX_CARDS;
use std::ops::Range;
use std::sync::OnceLock;

/// Addresses per byte of card memory: an arena never moves what lives, so it needs room to spare.
const SPARE: u64 = 4;
const ALIGNMENT: u64 = 1 << 30;
/// Bytes of address space below 4 GiB, all cards together.
const NARROW: u64 = 1 << 30;

/// A reservation, one equal part per card.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    base: u64,
    stride: u64,
}

/// The device addresses of this process.
#[derive(Debug)]
pub struct Backing {
    cards: usize,
    wide: Reservation,
    /// Made when first asked for: hardly a program does. `None` when there is no room.
    narrow: OnceLock<Option<Reservation>>,
}

impl Backing {
    /// Reserves addresses for cards of these sizes.
    pub fn reserve(memory: &[u64]) -> Result<Self, String> {
        let cards = memory.len().clamp(1, MAX_CARDS);
        let largest = memory.iter().copied().max().unwrap_or(0);
        let stride = (largest * SPARE).next_multiple_of(ALIGNMENT);
        let size = stride * cards as u64 + ALIGNMENT;
        let start = map(0, size)
            .map_err(|error| format!("cannot reserve {size} bytes of address space: {error}"))?;
        let wide = Reservation { base: start.next_multiple_of(ALIGNMENT), stride };
        Ok(Self { cards, wide, narrow: OnceLock::new() })
    }

    /// The bytes of address space in each of the spaces, which are numbered from 0: first every
    /// card's wide one, then every card's narrow one.
    pub fn spaces(&self) -> Vec<u64> {
        let mut sizes = vec![self.wide.stride; self.cards];
        sizes.resize(2 * self.cards, NARROW / self.cards as u64);
        sizes
    }

    /// The card a space belongs to.
    pub fn card_of(&self, space: usize) -> usize {
        space % self.cards
    }

    /// A card's space below 4 GiB; `None` when this process has no room there.
    pub fn narrow_space(&self, card: usize) -> Option<usize> {
        let stride = NARROW / self.cards as u64;
        let reserved = self.narrow.get_or_init(|| {
            // From 1 GiB upwards, so that no program text is in the way.
            let places = (1..4).map(|gibibytes| gibibytes << 30);
            let base = places.into_iter().find_map(|place| map(place, NARROW).ok())?;
            Some(Reservation { base, stride })
        });
        reserved.map(|_| self.cards + card)
    }

    /// The device pointer of an offset in a space.
    pub fn pointer(&self, space: usize, offset: u64) -> u64 {
        let card = self.card_of(space) as u64;
        let narrow = self.narrow.get().copied().flatten();
        let reservation = narrow.filter(|_| space >= self.cards).unwrap_or(self.wide);
        reservation.base + card * reservation.stride + offset
    }

    /// The space and offset of a device pointer; `None` for any other address.
    #[inline]
    pub fn locate(&self, pointer: u64) -> Option<(usize, u64)> {
        let find = |reservation: &Reservation| {
            let distance = pointer.checked_sub(reservation.base)?;
            let card = (distance / reservation.stride) as usize;
            (card < self.cards).then_some((card, distance % reservation.stride))
        };
        find(&self.wide).or_else(|| {
            let (card, offset) = self.narrow.get()?.as_ref().and_then(find)?;
            Some((self.cards + card, offset))
        })
    }

    /// Gives the pages of a range of offsets back to the system.
    pub fn discard(&self, space: usize, range: &Range<u64>) {
        let start = self.pointer(space, range.start) as *mut libc::c_void;
        let size = (range.end - range.start) as usize;
        // SAFETY: the range lies in our reservation, and nothing lives in it any more.
        unsafe { libc::madvise(start, size, libc::MADV_DONTNEED) };
    }
}

/// Reserves addresses, at `place` unless that is 0.
fn map(place: u64, size: u64) -> std::io::Result<u64> {
    let fixed = if place == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    // SAFETY: an anonymous mapping that replaces nothing.
    let start = unsafe {
        libc::mmap(
            place as *mut libc::c_void,
            size as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: the mapping is ours; both pieces of advice only concern copies of it.
        unsafe { libc::madvise(start, size as usize, advice) };
    }
    Ok(start as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_cards_of_140_gib_fit_and_keep_apart() {
        let backing = Backing::reserve(&[140 << 30; 16]).expect("reserve");
        let pointer = backing.pointer(15, (139 << 30) + 7);
        assert_eq!(backing.locate(pointer), Some((15, (139 << 30) + 7)));
        assert_eq!(backing.locate(backing.pointer(0, 0) - 1), None);
        assert_eq!(backing.locate(0), None);
        // SAFETY: the byte lies in the reservation, which is readable and writable.
        unsafe {
            *(pointer as *mut u8) = 9;
            assert_eq!(*(pointer as *const u8), 9);
            backing.discard(15, &((139 << 30)..(139 << 30) + 4096));
            assert_eq!(*(pointer as *const u8), 0);
        }
    }

    #[test]
    fn narrow_spaces_fit_into_32_bits() {
        let backing = Backing::reserve(&[1 << 30; 3]).expect("reserve");
        let space = backing.narrow_space(2).expect("room below 4 GiB");
        let pointer = backing.pointer(space, 4096);
        assert!(u32::try_from(pointer).is_ok(), "{pointer:#x}");
        assert_eq!(backing.locate(pointer), Some((space, 4096)));
        assert_eq!(backing.card_of(space), 2);
        assert_eq!(backing.spaces().len(), 6);
    }
}
