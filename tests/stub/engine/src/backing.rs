//! Real bytes behind device addresses, so that copies are exact.
//!
//! A device pointer is an address in a reservation of this process. The reservation is neither
//! committed nor counted (`MAP_NORESERVE`), so a 140 GiB card costs only the pages that are
//! written. Freed pages return to the system. As with a real card, a forked child has no access.
//!
//! Each card has a *space* of addresses for every [`Area`], so the kind of memory follows from the
//! address alone.

use crate::MAX_CARDS;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// Addresses per byte of card memory: an arena never moves allocations, so it needs spare room.
const SPARE: u64 = 4;
const ALIGNMENT: u64 = 1 << 30;
/// Bytes of address space below 4 GiB, all cards together.
const NARROW: u64 = 1 << 30;
/// Bytes of address space for allocations of graphs, all cards together: each graph keeps its
/// addresses, although most graphs share memory.
const GRAPHS: u64 = 16 << 40;

/// The use of the addresses of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Linear memory.
    Linear,
    /// Linear memory below 4 GiB, for the first version of the API, whose pointers have 32 bits.
    Narrow,
    /// Managed memory.
    Managed,
    /// Chunks of memory pools.
    Pooled,
    /// Global variables of modules.
    Globals,
    /// Elements of arrays. Programs never see these addresses.
    Arrays,
    /// Allocations of graphs.
    Graphs,
}

/// By number; spaces are numbered by area, then by card.
const AREAS: [Area; 7] = [
    Area::Linear,
    Area::Narrow,
    Area::Managed,
    Area::Pooled,
    Area::Globals,
    Area::Arrays,
    Area::Graphs,
];

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
    /// The areas after the first, reserved when they are first needed, because most programs never
    /// need them; `None` when there is no room.
    others: [OnceLock<Option<Reservation>>; AREAS.len() - 1],
}

impl Backing {
    /// Reserves addresses for cards of these sizes.
    pub fn reserve(memory: &[u64]) -> Result<Self, String> {
        let cards = memory.len().clamp(1, MAX_CARDS);
        let largest = memory.iter().copied().max().unwrap_or(0);
        let stride = (largest * SPARE).next_multiple_of(ALIGNMENT);
        let wide = Reservation::wide(cards, stride)
            .map_err(|error| format!("cannot reserve {stride} addresses for a card: {error}"))?;
        Ok(Self { cards, wide, others: Default::default() })
    }

    /// The bytes of address space in each of the spaces.
    pub fn spaces(&self) -> Vec<u64> {
        let stride = |area| match area {
            Area::Narrow => NARROW / self.cards as u64,
            Area::Graphs => self.graphs_stride(),
            _ => self.wide.stride,
        };
        AREAS.iter().flat_map(|area| vec![stride(*area); self.cards]).collect()
    }

    fn graphs_stride(&self) -> u64 {
        (GRAPHS / self.cards as u64).max(self.wide.stride)
    }

    /// The number of a space's area, and its card. Linear memory comes first and needs no division:
    /// hooks on its path are measured in nanoseconds.
    #[inline]
    fn split(&self, space: usize) -> (usize, usize) {
        if space < self.cards { (0, space) } else { (space / self.cards, space % self.cards) }
    }

    /// The card of a space.
    #[inline]
    pub fn card_of(&self, space: usize) -> usize {
        self.split(space).1
    }

    /// The area of a space.
    #[inline]
    pub fn area_of(&self, space: usize) -> Area {
        AREAS[self.split(space).0]
    }

    /// A card's space in an area; `None` when this process has no room for it.
    pub fn space(&self, area: Area, card: usize) -> Option<usize> {
        let number = area as usize;
        let Some(other) = number.checked_sub(1) else { return Some(card) };
        let reserved = self.others[other].get_or_init(|| match area {
            Area::Narrow => Reservation::narrow(self.cards),
            Area::Graphs => Reservation::wide(self.cards, self.graphs_stride()).ok(),
            _ => Reservation::wide(self.cards, self.wide.stride).ok(),
        });
        reserved.map(|_| number * self.cards + card)
    }

    fn reservation(&self, area: usize) -> Option<&Reservation> {
        match area.checked_sub(1) {
            None => Some(&self.wide),
            Some(other) => self.others[other].get()?.as_ref(),
        }
    }

    /// The device pointer of an offset in a space.
    #[inline]
    pub fn pointer(&self, space: usize, offset: u64) -> u64 {
        let (area, card) = self.split(space);
        let reservation = self.reservation(area).unwrap_or(&self.wide);
        reservation.base + card as u64 * reservation.stride + offset
    }

    /// The space and offset of a device pointer; `None` for any other address.
    #[inline]
    pub fn locate(&self, pointer: u64) -> Option<(usize, u64)> {
        match self.wide.locate(pointer, self.cards) {
            Some(found) => Some(found),
            None => self.locate_elsewhere(pointer),
        }
    }

    fn locate_elsewhere(&self, pointer: u64) -> Option<(usize, u64)> {
        (1..AREAS.len()).find_map(|area| {
            let (card, offset) = self.reservation(area)?.locate(pointer, self.cards)?;
            Some((area * self.cards + card, offset))
        })
    }

    /// Makes a range of offsets memory of this process only again, without its bytes.
    pub fn make_private(&self, space: usize, range: &Range<u64>) {
        let (start, bytes) = (self.pointer(space, range.start), range.end - range.start);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies in our reservation, and nothing uses it.
        if unsafe { mmap(start, bytes, access, PRIVATE | libc::MAP_FIXED) }.is_ok() {
            keep_private(start as *mut libc::c_void, bytes as usize);
        }
    }

    /// Returns the pages of a range of offsets to the system.
    pub fn discard(&self, space: usize, range: &Range<u64>) {
        let start = self.pointer(space, range.start) as *mut libc::c_void;
        let size = (range.end - range.start) as usize;
        // SAFETY: the range lies in our reservation, and nothing uses it.
        unsafe { libc::madvise(start, size, libc::MADV_DONTNEED) };
    }
}

impl Reservation {
    fn wide(cards: usize, stride: u64) -> std::io::Result<Self> {
        let start = map(0, stride * cards as u64 + ALIGNMENT)?;
        Ok(Self { base: start.next_multiple_of(ALIGNMENT), stride })
    }

    /// The card and offset of an address.
    #[inline]
    fn locate(&self, pointer: u64, cards: usize) -> Option<(usize, u64)> {
        let distance = pointer.checked_sub(self.base)?;
        let card = (distance / self.stride) as usize;
        (card < cards).then_some((card, distance % self.stride))
    }

    fn narrow(cards: usize) -> Option<Self> {
        // From 1 GiB upwards, to stay clear of program text.
        let starts = (1..4).map(|gibibytes| gibibytes << 30);
        let base = starts.into_iter().find_map(|start| map(start, NARROW).ok())?;
        Some(Self { base, stride: NARROW / cards as u64 })
    }
}

/// Addresses that this process has reserved and that have no memory, until they are dropped.
#[derive(Debug)]
pub struct AddressRange {
    /// The first address.
    pub start: u64,
    /// The number of addresses.
    pub bytes: u64,
}

impl AddressRange {
    /// Reserves addresses that start at a multiple of `alignment`, a power of two: at `wanted` if
    /// possible and not 0.
    pub fn reserve(bytes: u64, alignment: u64, wanted: u64) -> io::Result<Self> {
        if wanted != 0
            && wanted.is_multiple_of(alignment)
            && let Ok(start) = reserve_at(wanted, bytes)
        {
            return Ok(Self { start, bytes });
        }
        let too_much = || io::Error::from_raw_os_error(libc::ENOMEM);
        let room = bytes.checked_add(alignment).ok_or_else(too_much)?;
        let found = reserve_at(0, room)?;
        let start = found.next_multiple_of(alignment);
        unmap(found..start);
        unmap(start + bytes..found + room);
        Ok(Self { start, bytes })
    }

    /// Takes the memory away from a range of addresses inside.
    pub fn clear(&self, range: &Range<u64>) {
        debug_assert!(self.start <= range.start && range.end <= self.start + self.bytes);
        let bytes = range.end - range.start;
        // SAFETY: the addresses are ours, and the caller no longer uses the memory there.
        let _ = unsafe { mmap(range.start, bytes, libc::PROT_NONE, PRIVATE | libc::MAP_FIXED) };
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        unmap(self.start..self.start + self.bytes);
    }
}

const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// # Safety
/// With `MAP_FIXED`, nothing may use the addresses.
unsafe fn mmap(start: u64, bytes: u64, access: i32, flags: i32) -> io::Result<u64> {
    // SAFETY: the caller's promise.
    let start =
        unsafe { libc::mmap(start as *mut libc::c_void, bytes as usize, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as u64) }
}

fn reserve_at(start: u64, bytes: u64) -> io::Result<u64> {
    let fixed = if start == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    // SAFETY: the mapping replaces nothing.
    unsafe { mmap(start, bytes, libc::PROT_NONE, PRIVATE | fixed) }
}

fn unmap(range: Range<u64>) {
    if !range.is_empty() {
        // SAFETY: the addresses are ours, and nothing uses them any more.
        unsafe {
            libc::munmap(range.start as *mut libc::c_void, (range.end - range.start) as usize)
        };
    }
}

/// Maps a range of a file at addresses of this process.
pub(crate) fn map_fixed(
    start: u64,
    range: &Range<u64>,
    access: i32,
    descriptor: i32,
) -> io::Result<()> {
    let (start, bytes) = (start as *mut libc::c_void, (range.end - range.start) as usize);
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the addresses are reserved for this; the caller replaces only what it owns.
    let mapped = unsafe { libc::mmap(start, bytes, access, flags, descriptor, range.start as i64) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    keep_private(start, bytes);
    Ok(())
}

/// Keeps a mapping out of forked children and core dumps.
fn keep_private(start: *mut libc::c_void, bytes: usize) {
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: the mapping is ours; both pieces of advice only concern copies of it.
        unsafe { libc::madvise(start, bytes, advice) };
    }
}

/// Reserves addresses, at `start` unless that is 0.
fn map(start: u64, size: u64) -> std::io::Result<u64> {
    let fixed = if start == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    // SAFETY: an anonymous mapping that replaces nothing.
    let start = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
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
    keep_private(start, size as usize);
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
        let space = backing.space(Area::Narrow, 2).expect("room below 4 GiB");
        let pointer = backing.pointer(space, 4096);
        assert!(u32::try_from(pointer).is_ok(), "{pointer:#x}");
        assert_eq!(backing.locate(pointer), Some((space, 4096)));
        assert_eq!(backing.card_of(space), 2);
        assert_eq!(backing.area_of(space), Area::Narrow);
    }

    #[test]
    fn an_address_says_what_it_is_for() {
        let backing = Backing::reserve(&[16 << 30, 16 << 30]).expect("reserve");
        assert_eq!(backing.spaces().len(), 2 * AREAS.len());
        for area in AREAS {
            let space = backing.space(area, 1).expect("room");
            let pointer = backing.pointer(space, 12345);
            assert_eq!(backing.locate(pointer), Some((space, 12345)));
            assert_eq!((backing.area_of(space), backing.card_of(space)), (area, 1));
        }
    }
}
