//! The identity of a word for all processes that map it: its file, and the offset in the file.
//!
//! It is read from `/proc/self/maps`, which is cached until a mapping changes.

use crate::raw;
use crate::table::Key;
use std::fs;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// A range of addresses that maps a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    offset: u64,
    file: u64,
}

/// The cached mappings of this process; None: they have changed.
static RANGES: Mutex<Option<Vec<Range>>> = Mutex::new(None);

/// The word at an address that only this process waits for.
pub fn private(address: usize) -> Key {
    Key { space: u64::from(raw::process_id()) << 1 | 1, offset: address as u64 }
}

/// The word at an address that processes may share.
pub fn shared(address: usize) -> Key {
    let mut ranges = lock();
    let ranges = ranges.get_or_insert_with(|| {
        fs::read_to_string("/proc/self/maps").map_or_else(|_| Vec::new(), |maps| parse(&maps))
    });
    let address = address as u64;
    match ranges.iter().find(|range| (range.start..range.end).contains(&address)) {
        Some(range) => Key { space: range.file << 1, offset: address - range.start + range.offset },
        None => private(address as usize),
    }
}

/// Drops the cached mappings.
pub fn forget() {
    *lock() = None;
}

/// Spins, because the lock's own wait would call this library.
fn lock() -> MutexGuard<'static, Option<Vec<Range>>> {
    loop {
        match RANGES.try_lock() {
            Ok(ranges) => return ranges,
            Err(TryLockError::Poisoned(ranges)) => return ranges.into_inner(),
            Err(TryLockError::WouldBlock) => raw::sleep(Duration::from_micros(10)),
        }
    }
}

fn parse(maps: &str) -> Vec<Range> {
    maps.lines().filter_map(parse_line).collect()
}

/// Parses `7f00-7f10 rw-s 00002000 fd:01 1234   /path`; None if it is not a shared file.
fn parse_line(line: &str) -> Option<Range> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.ends_with('s') {
        return None;
    }
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.next()?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode: u64 = fields.next()?.parse().ok()?;
    let device = hex(major)? << 12 | hex(minor)?;
    // Inode numbers of the files of one test are far below 2^40.
    Some(Range { start: hex(start)?, end: hex(end)?, offset, file: device << 40 ^ inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_files_have_a_place_that_others_see() {
        let maps = "\
            7f00000000-7f00001000 rw-s 00002000 fd:01 1234    /tmp/account\n\
            7f00001000-7f00002000 rw-p 00000000 fd:01 1235    /lib/x.so\n\
            7f00003000-7f00004000 r--s 00000000 00:01 77      /dev/zero (deleted)\n";
        let ranges = parse(maps);
        assert_eq!(ranges.len(), 2);
        assert_eq!((ranges[0].start, ranges[0].end), (0x7f_0000_0000, 0x7f_0000_1000));
        assert_eq!(ranges[0].offset, 0x2000);
        assert_ne!(ranges[0].file, ranges[1].file);
        let local = 0;
        assert_eq!(shared(&raw const local as usize), private(&raw const local as usize));
    }
}
