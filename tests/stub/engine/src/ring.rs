//! A client's page: memory that it shares with the server and that outlives the client. It has the
//! client's counters and a ring with the work that the client has submitted.
//!
//! A launch on a real card takes microseconds, so a launch must not cost a message here. The client
//! writes an item into the ring, and the server reads all rings before it answers any request.
//! Every item carries the client's clock, so the result does not depend on when the server reads
//! it. An item that a killed client has only half written does not count.

use crate::counters::Counters;
use crate::time::{Direction, Item, Mark, Work};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Items that fit into a ring.
pub const CAPACITY: u64 = 8192;

const WORDS: usize = 6;

/// The ring. Every field is valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// How many items the client has written in total.
    written: AtomicU64,
    /// How many items the server has taken in total.
    taken: AtomicU64,
    items: [[AtomicU64; WORDS]; CAPACITY as usize],
}

const KERNEL: u64 = 1;
const COPY: u64 = 2;
const RECORD: u64 = 3;
const WAIT: u64 = 4;
const END: u64 = 5;

fn encode(item: &Item) -> [u64; WORDS] {
    let (kind, number, amount, demand) = match item.work {
        Work::Kernel { name, ns, demand } => (KERNEL, name, ns, demand),
        Work::Copy { direction, ns } => (COPY, direction as u32, ns, 0),
        Work::Record { event } => (RECORD, event, 0, 0),
        Work::Wait(mark) => (WAIT, 0, mark.bits(), 0),
        Work::End => (END, 0, 0, 0),
    };
    let owner = u64::from(item.context) << 32 | u64::from(item.card);
    let what = u64::from(number) << 32 | kind;
    [item.at, item.mark.bits(), owner, what, amount, u64::from(demand)]
}

/// Decodes an item; `None` for words that no client writes.
fn decode(words: [u64; WORDS]) -> Option<Item> {
    let [at, mark, owner, what, amount, demand] = words;
    let (number, kind) = ((what >> 32) as u32, what & u64::from(u32::MAX));
    let work = match kind {
        KERNEL => Work::Kernel { name: number, ns: amount, demand: demand as u32 },
        COPY if number == Direction::ToDevice as u32 => {
            Work::Copy { direction: Direction::ToDevice, ns: amount }
        }
        COPY => Work::Copy { direction: Direction::ToHost, ns: amount },
        RECORD => Work::Record { event: number },
        WAIT => Work::Wait(Mark::from_bits(amount)),
        END => Work::End,
        _ => return None,
    };
    let (context, card) = ((owner >> 32) as u32, owner as u32);
    Some(Item { at, mark: Mark::from_bits(mark), context, card, work })
}

impl Ring {
    /// Writes an item; `false` when there is no room. One writer at a time.
    pub fn push(&self, item: &Item) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.taken.load(Ordering::Acquire)) >= CAPACITY {
            return false;
        }
        let room = &self.items[(written % CAPACITY) as usize];
        for (slot, word) in room.iter().zip(encode(item)) {
            slot.store(word, Ordering::Relaxed);
        }
        self.written.store(written + 1, Ordering::Release);
        true
    }

    /// Takes items up to an instant, in order; `taken` is the reader's own count of those taken
    /// before. From a client with inconsistent numbers it takes nothing more.
    pub fn take(&self, taken: &mut u64, until: u64, mut take_item: impl FnMut(Item)) {
        let written = self.written.load(Ordering::Acquire);
        if written.wrapping_sub(*taken) > CAPACITY {
            return;
        }
        while *taken != written {
            let room = &self.items[(*taken % CAPACITY) as usize];
            let item = decode(room.each_ref().map(|word| word.load(Ordering::Relaxed)));
            if item.is_some_and(|item| item.at > until) {
                break;
            }
            *taken += 1;
            item.into_iter().for_each(&mut take_item);
        }
        self.taken.store(*taken, Ordering::Release);
    }
}

/// The memory that a client and the server share. Every field is valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// The counters of the client.
    pub counters: Counters,
    /// The latest instant of the client's clock at which it answered a query without the server.
    pub latest: AtomicU64,
    /// The work it has submitted.
    pub ring: Ring,
}

/// A [`Page`] in shared memory.
#[derive(Debug)]
pub struct Shared(*mut Page);

// SAFETY: the mapping is only ever reached through the atomics of `Page`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates a page, all zero, and the file that another process can map.
    pub fn create() -> std::io::Result<(Self, File)> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"stub-gpu-client".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        file.set_len(size_of::<Page>() as u64)?;
        Ok((Self::map(&file)?, file))
    }

    /// Maps the page of a file from [`Shared::create`].
    pub fn map(file: &File) -> std::io::Result<Self> {
        if file.metadata()?.len() < size_of::<Page>() as u64 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Page>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self(start.cast()))
    }
}

impl std::ops::Deref for Shared {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: the mapping is as large as `Page`, whose fields are valid whatever is there.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        unsafe { libc::munmap(self.0.cast(), size_of::<Page>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(at: u64, work: Work) -> Item {
        Item { at, mark: Mark::new(3, at), context: 1 << 31, card: 15, work }
    }

    fn take(ring: &Ring, taken: &mut u64, until: u64) -> Vec<Item> {
        let mut items = Vec::new();
        ring.take(taken, until, |item| items.push(item));
        items
    }

    #[test]
    fn items_come_out_as_they_went_in_up_to_an_instant() {
        let (page, file) = Shared::create().expect("memory");
        let other = Shared::map(&file).expect("the same memory");
        let works = [
            Work::Kernel { name: u32::MAX, ns: u64::MAX, demand: 1 << 16 },
            Work::Copy { direction: Direction::ToDevice, ns: 1 },
            Work::Copy { direction: Direction::ToHost, ns: 2 },
            Work::Record { event: 7 },
            Work::Wait(Mark::new(9, 1 << 39)),
            Work::End,
        ];
        let items: Vec<_> = (1..).zip(works).map(|(at, work)| item(at, work)).collect();
        assert!(items.iter().all(|item| page.ring.push(item)));
        let mut taken = 0;
        assert_eq!(take(&other.ring, &mut taken, 0), []);
        assert_eq!(take(&other.ring, &mut taken, 4), items[..4]);
        assert_eq!(take(&other.ring, &mut taken, u64::MAX), items[4..]);
    }

    #[test]
    fn a_full_ring_takes_nothing_until_somebody_takes() {
        let (page, _file) = Shared::create().expect("memory");
        let mut taken = 0;
        for round in 0..3 {
            for at in 0..CAPACITY {
                assert!(page.ring.push(&item(at, Work::End)), "{round} {at}");
            }
            assert!(!page.ring.push(&item(0, Work::End)));
            assert_eq!(take(&page.ring, &mut taken, u64::MAX).len() as u64, CAPACITY);
        }
    }

    #[test]
    fn what_no_client_writes_is_passed_over() {
        let (page, _file) = Shared::create().expect("memory");
        let mut taken = 0;
        assert!(page.ring.push(&item(1, Work::End)));
        page.ring.items[0][3].store(99, Ordering::Relaxed);
        assert!(page.ring.push(&item(2, Work::End)));
        assert_eq!(take(&page.ring, &mut taken, 9), [item(2, Work::End)]);
        page.ring.written.store(1 << 60, Ordering::Relaxed);
        assert_eq!(take(&page.ring, &mut taken, 9), []);
        page.ring.written.store(0, Ordering::Relaxed);
        assert_eq!(take(&page.ring, &mut taken, 9), []);
    }
}
