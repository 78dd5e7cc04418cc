//! The page as bytes: offsets, encoding, and the checks before a page is used. No I/O.

use super::{Regime, Row};
use crate::file::FileKind;
use crate::quantity::InvalidValue;

/// The most cards that a slice can have.
pub const MAX_ROWS: usize = 16;
/// The `memory_limit` of a row that has no limit.
pub const NO_LIMIT: u64 = u64::MAX;

pub(super) const PAGE_SIZE: usize = 4096;
pub(super) const COPY_SIZE: usize = 2016;
pub(super) const ACTIVE: usize = 32;
pub(super) const REGULATED: usize = 36;

pub(super) const FILE: FileKind =
    FileKind { name: "limits page", magic: *b"HAMILIM1", version: 1, size: PAGE_SIZE };

const SLICE_ID: usize = 16;
const IDENTITY_SIZE: usize = 32;
const FIRST_COPY: usize = 64;
const ROWS: usize = 16;
const ROW_SIZE: usize = 96;
const UUID_SIZE: usize = 64;
const MEMORY_LIMIT: usize = 64;
const REGIME: usize = 72;
const ROW_END: usize = 80;

pub(super) type Page = [u8; PAGE_SIZE];

/// The decoded content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub active: u32,
    pub generation: u32,
    pub rows: Vec<Row>,
}

/// The offset of copy `active`.
pub(super) const fn copy_offset(active: u32) -> usize {
    FIRST_COPY + (active & 1) as usize * COPY_SIZE
}

/// The offset of a row's memory limit, aligned for one 8-byte load.
pub(super) const fn memory_limit_offset(active: u32, row: usize) -> usize {
    copy_offset(active) + ROWS + row * ROW_SIZE + MEMORY_LIMIT
}

/// The offset of a row's regime, aligned for one 8-byte load.
pub(super) const fn regime_offset(active: u32, row: usize) -> usize {
    copy_offset(active) + ROWS + row * ROW_SIZE + REGIME
}

const _: () = assert!(copy_offset(1) + COPY_SIZE == PAGE_SIZE);
const _: () = assert!(ROWS + MAX_ROWS * ROW_SIZE <= COPY_SIZE);
const _: () = assert!(memory_limit_offset(1, 1).is_multiple_of(8));
const _: () = assert!(regime_offset(1, 1).is_multiple_of(8));
const _: () = assert!(REGULATED.is_multiple_of(4));

/// A new page with copy 0 in force.
pub(super) fn encode_page(slice_id: [u8; 16], rows: &[Row]) -> Page {
    let mut page = [0; PAGE_SIZE];
    page[..SLICE_ID].copy_from_slice(&FILE.head());
    page[SLICE_ID..IDENTITY_SIZE].copy_from_slice(&slice_id);
    put_u32(&mut page, REGULATED, u32::from(is_regulated(rows)));
    let copy = encode_copy(&page, 1, rows);
    page[copy_offset(0)..copy_offset(1)].copy_from_slice(&copy);
    page
}

/// One copy with its checksum for `page`. The rows have passed [`check_rows`].
pub(super) fn encode_copy(page: &Page, generation: u32, rows: &[Row]) -> [u8; COPY_SIZE] {
    let mut copy = [0; COPY_SIZE];
    put_u32(&mut copy, 8, rows.len() as u32);
    put_u32(&mut copy, 12, generation);
    for (row, bytes) in rows.iter().zip(copy[ROWS..].chunks_exact_mut(ROW_SIZE)) {
        bytes[..row.uuid.len()].copy_from_slice(row.uuid.as_bytes());
        bytes[MEMORY_LIMIT..REGIME]
            .copy_from_slice(&row.memory_limit.unwrap_or(NO_LIMIT).to_le_bytes());
        bytes[REGIME..ROW_END].copy_from_slice(&row.regime().encode());
    }
    let checksum = checksum(page, &copy);
    copy[..8].copy_from_slice(&checksum.to_le_bytes());
    copy
}

/// The content of a page, or the first reason why it is damaged. Any bytes are safe to pass.
pub(super) fn decode(page: &Page) -> Result<Contents, String> {
    FILE.check_head(page)?;
    decode_copies(page).map_err(str::to_owned)
}

fn decode_copies(page: &Page) -> Result<Contents, &'static str> {
    let active = get_u32(page, ACTIVE);
    if active > 1 || get_u32(page, REGULATED) > 1 || !is_zero(&page[REGULATED + 4..FIRST_COPY]) {
        return Err("its header is invalid");
    }
    let copy = &page[copy_offset(active)..][..COPY_SIZE];
    if get_u64(copy, 0) != checksum(page, copy) {
        return Err("its checksum is wrong");
    }
    let count = get_u32(copy, 8) as usize;
    if count > MAX_ROWS {
        return Err("it has more than 16 rows");
    }
    if !is_zero(&copy[ROWS + count * ROW_SIZE..]) {
        return Err("it has bytes after its last row");
    }
    let rows = copy[ROWS..].chunks_exact(ROW_SIZE).take(count).map(decode_row);
    let rows = rows.collect::<Option<Vec<Row>>>().ok_or("one of its rows is invalid")?;
    if check_rows(&rows).is_err() {
        return Err("one of its rows has an invalid value");
    }
    Ok(Contents { active, generation: get_u32(copy, 12), rows })
}

fn decode_row(bytes: &[u8]) -> Option<Row> {
    let (uuid, padding) = bytes[..UUID_SIZE].split_at(bytes.iter().position(|b| *b == 0)?);
    if !is_zero(padding) || !is_zero(&bytes[ROW_END..ROW_SIZE]) {
        return None;
    }
    let limit = get_u64(bytes, MEMORY_LIMIT);
    let mut regime = [0; ROW_END - REGIME];
    regime.copy_from_slice(&bytes[REGIME..ROW_END]);
    let Regime { share, mode, priority } = Regime::decode(regime)?;
    Some(Row {
        uuid: String::from_utf8(uuid.to_vec()).ok()?,
        memory_limit: (limit != NO_LIMIT).then_some(limit),
        share: (share != 0).then_some(share),
        mode,
        priority,
    })
}

/// The header's `regulated`: whether launches of the slice need permission because of a share.
pub(super) fn is_regulated(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.share.is_some_and(|share| share < 100))
}

/// Checks that a page can hold these rows. Every writer calls it.
pub(super) fn check_rows(rows: &[Row]) -> Result<(), InvalidValue> {
    if rows.len() > MAX_ROWS {
        let count = rows.len().to_string();
        return Err(InvalidValue::new("rows", &count, "a slice has at most 16 cards"));
    }
    for (i, row) in rows.iter().enumerate() {
        let uuid = row.uuid.as_str();
        let printable = uuid.bytes().all(|b| b.is_ascii_graphic());
        if uuid.is_empty() || uuid.len() >= UUID_SIZE || !printable {
            return Err(InvalidValue::new(
                "uuid",
                uuid,
                "write it as NVML does, GPU-… or MIG-…, in fewer than 64 characters",
            ));
        }
        if rows[..i].iter().any(|other| other.uuid == uuid) {
            return Err(InvalidValue::new("uuid", uuid, "name each card once"));
        }
        if row.memory_limit.is_some_and(|limit| limit == 0 || limit == NO_LIMIT) {
            let limit = row.memory_limit.unwrap_or_default().to_string();
            let fix = "write at least 1 byte and less than 16777216TiB, or None for no limit";
            return Err(InvalidValue::new("memory_limit", &limit, fix));
        }
        if row.share.is_some_and(|share| !(1..=100).contains(&share)) {
            let share = row.share.unwrap_or_default().to_string();
            return Err(InvalidValue::new("share", &share, "write 1 to 100, or None for no limit"));
        }
    }
    Ok(())
}

/// FNV-1a over the page's identity and the copy without its checksum. It detects accidents; only the
/// file's permissions protect against malice.
fn checksum(page: &Page, copy: &[u8]) -> u64 {
    page[..IDENTITY_SIZE].iter().chain(&copy[8..]).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get_u32(bytes, at)) | u64::from(get_u32(bytes, at + 4)) << 32
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
