//! The page as bytes: offsets, encoding, and the checks before a page is used. No I/O.

use super::{Gang, Regime, Row};
use crate::file::FileKind;
use crate::quantity::InvalidValue;

/// The most cards that a slice can have.
pub const MAX_ROWS: usize = 16;
/// The `memory_limit` of a row that has no limit.
pub const NO_LIMIT: u64 = u64::MAX;

pub(super) const ACTIVE: usize = 32;
pub(super) const REGULATED: usize = 36;

pub(super) const PAGE: usize = 8192;
pub(super) const FILE: FileKind = FileKind { name: "limits page", magic: *b"HAMILIM1", size: PAGE };

const SLICE_ID: usize = 16;
const IDENTITY_SIZE: usize = 32;
const FIRST_COPY: usize = 64;
const COPY: usize = (PAGE - FIRST_COPY) / 2;

// Within a copy.
const COUNT: usize = 8;
const GENERATION: usize = 12;
const ROWS: usize = 16;
const GANG: usize = 2064;
const GANG_END: usize = 2080;

// Within a row.
const UUID_SIZE: usize = 64;
const MEMORY_LIMIT: usize = 64;
const REGIME: usize = 72;
const CONTEXT_MEMORY: usize = 80;
const INJECTED_MEMORY: usize = 88;
const INJECTED_SHARE: usize = 96;
const GRANULE: usize = 100;
const ROW: usize = 128;

/// The offset of copy `active`.
pub(super) const fn copy_at(active: u32) -> usize {
    FIRST_COPY + (active & 1) as usize * COPY
}

/// The offset of a row's memory limit, aligned for one 8-byte load.
pub(super) const fn memory_limit_at(active: u32, row: usize) -> usize {
    copy_at(active) + ROWS + row * ROW + MEMORY_LIMIT
}

/// The offset of a row's regime, aligned for one 8-byte load.
pub(super) const fn regime_at(active: u32, row: usize) -> usize {
    copy_at(active) + ROWS + row * ROW + REGIME
}

const _: () = assert!(COPY == 4064 && ROWS + MAX_ROWS * ROW == GANG && GANG_END <= COPY);
const _: () = assert!(memory_limit_at(1, 1).is_multiple_of(8) && regime_at(1, 1).is_multiple_of(8));
const _: () = assert!(REGULATED.is_multiple_of(4));

/// The decoded content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub active: u32,
    pub generation: u32,
    pub gang: Option<Gang>,
    pub rows: Vec<Row>,
}

/// A new page with copy 0 in force.
pub(super) fn encode_page(slice_id: [u8; 16], gang: Option<Gang>, rows: &[Row]) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..SLICE_ID].copy_from_slice(&FILE.head());
    page[SLICE_ID..IDENTITY_SIZE].copy_from_slice(&slice_id);
    put_u32(&mut page, REGULATED, u32::from(is_regulated(rows)));
    let copy = encode_copy(&page, 1, gang, rows);
    page[copy_at(0)..copy_at(1)].copy_from_slice(&copy);
    page
}

/// One copy with its checksum for `page`. The rows have passed [`check_rows`].
pub(super) fn encode_copy(
    page: &[u8],
    generation: u32,
    gang: Option<Gang>,
    rows: &[Row],
) -> Vec<u8> {
    let mut copy = vec![0; COPY];
    put_u32(&mut copy, COUNT, rows.len() as u32);
    put_u32(&mut copy, GENERATION, generation);
    for (row, bytes) in rows.iter().zip(copy[ROWS..].chunks_exact_mut(ROW)) {
        encode_row(bytes, row);
    }
    copy[GANG..GANG_END].copy_from_slice(&gang.unwrap_or_default());
    let checksum = checksum(page, &copy);
    put_u64(&mut copy, 0, checksum);
    copy
}

fn encode_row(bytes: &mut [u8], row: &Row) {
    bytes[..row.uuid.len()].copy_from_slice(row.uuid.as_bytes());
    put_u64(bytes, MEMORY_LIMIT, row.memory_limit.unwrap_or(NO_LIMIT));
    bytes[REGIME..CONTEXT_MEMORY].copy_from_slice(&row.regime().encode());
    put_u64(bytes, CONTEXT_MEMORY, row.context_memory.unwrap_or(0));
    put_u64(bytes, INJECTED_MEMORY, row.injected_memory.unwrap_or(0));
    put_u32(bytes, INJECTED_SHARE, row.injected_share.unwrap_or(0));
    put_u32(bytes, GRANULE, row.granule.unwrap_or(0));
}

/// The content of a page whose size and head were checked, or the first reason why it is damaged.
/// Any bytes are safe to pass.
pub(super) fn decode(page: &[u8]) -> Result<Contents, &'static str> {
    let active = get_u32(page, ACTIVE);
    if active > 1 || get_u32(page, REGULATED) > 1 || !is_zero(&page[REGULATED + 4..FIRST_COPY]) {
        return Err("its header is invalid");
    }
    let copy = &page[copy_at(active)..][..COPY];
    if get_u64(copy, 0) != checksum(page, copy) {
        return Err("its checksum is wrong");
    }
    let count = get_u32(copy, COUNT) as usize;
    if count > MAX_ROWS {
        return Err("it has more than 16 rows");
    }
    let (rows, unused) = copy[ROWS..GANG].split_at(count * ROW);
    if !is_zero(unused) || !is_zero(&copy[GANG_END..]) {
        return Err("it has bytes after its last row");
    }
    let rows = rows.chunks_exact(ROW).map(decode_row);
    let rows = rows.collect::<Option<Vec<Row>>>().ok_or("one of its rows is invalid")?;
    if check_rows(&rows).is_err() {
        return Err("one of its rows has an invalid value");
    }
    let gang = copy[GANG..].first_chunk().filter(|gang| !is_zero(*gang)).copied();
    Ok(Contents { active, generation: get_u32(copy, GENERATION), gang, rows })
}

fn decode_row(bytes: &[u8]) -> Option<Row> {
    let uuid = &bytes[..UUID_SIZE];
    let (uuid, padding) = uuid.split_at(uuid.iter().position(|b| *b == 0)?);
    let limit = get_u64(bytes, MEMORY_LIMIT);
    let Regime { share, mode, priority } = Regime::decode(*bytes[REGIME..].first_chunk()?)?;
    if !is_zero(padding) {
        return None;
    }
    Some(Row {
        uuid: String::from_utf8(uuid.to_vec()).ok()?,
        memory_limit: (limit != NO_LIMIT).then_some(limit),
        share: (share != 0).then_some(share),
        mode,
        priority,
        context_memory: Some(get_u64(bytes, CONTEXT_MEMORY)).filter(|value| *value != 0),
        granule: Some(get_u32(bytes, GRANULE)).filter(|value| *value != 0),
        injected_memory: Some(get_u64(bytes, INJECTED_MEMORY)).filter(|value| *value != 0),
        injected_share: Some(get_u32(bytes, INJECTED_SHARE)).filter(|value| *value != 0),
    })
}

/// The header's `regulated`: whether launches of the slice need admission because of a share.
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
        if row.context_memory == Some(0) {
            let fix = "write at least 1 byte, or None if it is unknown";
            return Err(InvalidValue::new("context_memory", "0", fix));
        }
        if row.granule.is_some_and(|granule| granule < 1024 || !granule.is_power_of_two()) {
            let granule = row.granule.unwrap_or_default().to_string();
            let fix = "write a power of two from 1024 bytes on, or None for exact allocations";
            return Err(InvalidValue::new("granule", &granule, fix));
        }
        if row.injected_memory.is_some_and(|bytes| bytes == 0 || bytes == NO_LIMIT) {
            let bytes = row.injected_memory.unwrap_or_default().to_string();
            return Err(InvalidValue::new("injected_memory", &bytes, "write at least 1 byte"));
        }
        if row.injected_share.is_some_and(|share| !(1..=100).contains(&share)) {
            let share = row.injected_share.unwrap_or_default().to_string();
            return Err(InvalidValue::new("injected_share", &share, "write 1 to 100"));
        }
    }
    Ok(())
}

/// FNV-1a over the page's identity and the copy without its checksum. It detects accidents; only
/// the file's permissions protect against malice.
fn checksum(page: &[u8], copy: &[u8]) -> u64 {
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

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
