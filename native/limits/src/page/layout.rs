//! The page as bytes: offsets, encoding, and the checks before a page is used. No I/O.

use super::{Regime, Row, SliceInfo};
use crate::file::FileKind;
use crate::format::{FileLayout, Format};
use crate::quantity::InvalidValue;

/// The most cards that a slice can have.
pub const MAX_ROWS: usize = 16;
/// The most injected values of each kind that a row can have.
pub const MAX_INJECTED: usize = 4;
/// The `memory_limit` of a row that has no limit.
pub const NO_LIMIT: u64 = u64::MAX;

pub(super) const ACTIVE: usize = 32;
pub(super) const REGULATED: usize = 36;

pub(super) const FILE: FileKind = FileKind {
    name: "limits page",
    magic: *b"HAMILIM1",
    layouts: [FileLayout { version: 1, size: 4096 }, FileLayout { version: 3, size: 8192 }],
};

const SLICE_ID: usize = 16;
const IDENTITY_SIZE: usize = 32;
const FIRST_COPY: usize = 64;

// Within a copy.
const COUNT: usize = 8;
const GENERATION: usize = 12;
const ROWS: usize = 16;
const GANG: usize = 2064;
const GANG_END: usize = 2080;
const COPY_END: usize = 2096;

// Within a row.
const UUID_SIZE: usize = 64;
const MEMORY_LIMIT: usize = 64;
const REGIME: usize = 72;
const CONTEXT_MEMORY: usize = 80;
const INJECTED_MEMORY: usize = 88;
const INJECTED_SHARES: usize = 120;
const GRANULE: usize = 124;
const ROW_END: usize = 128;

/// Where the formats differ: the sizes of a page, of a copy and of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub page: usize,
    pub copy: usize,
    pub row: usize,
}

impl Shape {
    pub const fn of(format: Format) -> Self {
        let page = FILE.layout(format).size;
        let row = match format {
            Format::Previous => 96,
            Format::Current => 128,
        };
        Self { page, copy: (page - FIRST_COPY) / 2, row }
    }

    /// The offset of copy `active`.
    pub const fn copy_at(self, active: u32) -> usize {
        FIRST_COPY + (active & 1) as usize * self.copy
    }

    /// The offset of a row's memory limit, aligned for one 8-byte load.
    pub const fn memory_limit(self, active: u32, row: usize) -> usize {
        self.copy_at(active) + ROWS + row * self.row + MEMORY_LIMIT
    }

    /// The offset of a row's regime, aligned for one 8-byte load.
    pub const fn regime(self, active: u32, row: usize) -> usize {
        self.copy_at(active) + ROWS + row * self.row + REGIME
    }
}

const OLD: Shape = Shape::of(Format::Previous);
const NEW: Shape = Shape::of(Format::Current);
const _: () = assert!(OLD.copy == 2016 && NEW.copy == 4064);
const _: () = assert!(ROWS + MAX_ROWS * OLD.row <= OLD.copy);
const _: () = assert!(ROWS + MAX_ROWS * NEW.row == GANG && COPY_END <= NEW.copy);
const _: () =
    assert!(OLD.memory_limit(1, 1).is_multiple_of(8) && OLD.regime(1, 1).is_multiple_of(8));
const _: () =
    assert!(NEW.memory_limit(1, 1).is_multiple_of(8) && NEW.regime(1, 1).is_multiple_of(8));
const _: () = assert!(REGULATED.is_multiple_of(4));

/// The decoded content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub format: Format,
    pub active: u32,
    pub generation: u32,
    pub info: SliceInfo,
    pub rows: Vec<Row>,
}

/// A new page with copy 0 in force. The previous format has no place for `info` and for the values
/// of a row that are new; they are left out.
pub(super) fn encode_page(
    format: Format,
    slice_id: [u8; 16],
    info: &SliceInfo,
    rows: &[Row],
) -> Vec<u8> {
    let shape = Shape::of(format);
    let mut page = vec![0; shape.page];
    page[..SLICE_ID].copy_from_slice(&FILE.head(format));
    page[SLICE_ID..IDENTITY_SIZE].copy_from_slice(&slice_id);
    put_u32(&mut page, REGULATED, u32::from(is_regulated(rows)));
    let copy = encode_copy(&page, format, 1, info, rows);
    page[shape.copy_at(0)..shape.copy_at(1)].copy_from_slice(&copy);
    page
}

/// One copy with its checksum for `page`. The rows have passed [`check_rows`].
pub(super) fn encode_copy(
    page: &[u8],
    format: Format,
    generation: u32,
    info: &SliceInfo,
    rows: &[Row],
) -> Vec<u8> {
    let shape = Shape::of(format);
    let mut copy = vec![0; shape.copy];
    put_u32(&mut copy, COUNT, rows.len() as u32);
    put_u32(&mut copy, GENERATION, generation);
    for (row, bytes) in rows.iter().zip(copy[ROWS..].chunks_exact_mut(shape.row)) {
        encode_row(bytes, format, row);
    }
    if format == Format::Current {
        copy[GANG..GANG_END].copy_from_slice(&info.gang.unwrap_or_default());
    }
    let checksum = checksum(page, &copy);
    put_u64(&mut copy, 0, checksum);
    copy
}

fn encode_row(bytes: &mut [u8], format: Format, row: &Row) {
    bytes[..row.uuid.len()].copy_from_slice(row.uuid.as_bytes());
    put_u64(bytes, MEMORY_LIMIT, row.memory_limit.unwrap_or(NO_LIMIT));
    bytes[REGIME..CONTEXT_MEMORY].copy_from_slice(&row.regime().encode());
    if format == Format::Current {
        put_u64(bytes, CONTEXT_MEMORY, row.context_memory.unwrap_or(0));
        for (i, value) in row.injected_memory.iter().enumerate() {
            put_u64(bytes, INJECTED_MEMORY + 8 * i, *value);
        }
        for (i, value) in row.injected_shares.iter().enumerate() {
            bytes[INJECTED_SHARES + i] = *value as u8;
        }
        put_u32(bytes, GRANULE, row.granule.unwrap_or(0));
    }
}

/// The content of a page, or the first reason why it is damaged. Any bytes are safe to pass.
pub(super) fn decode(page: &[u8]) -> Result<Contents, String> {
    let format = FILE.check_head(page)?;
    if page.len() != Shape::of(format).page {
        return Err("its size is not that of its version".to_owned());
    }
    decode_copies(page, format).map_err(str::to_owned)
}

fn decode_copies(page: &[u8], format: Format) -> Result<Contents, &'static str> {
    let shape = Shape::of(format);
    let active = get_u32(page, ACTIVE);
    if active > 1 || get_u32(page, REGULATED) > 1 || !is_zero(&page[REGULATED + 4..FIRST_COPY]) {
        return Err("its header is invalid");
    }
    let copy = &page[shape.copy_at(active)..][..shape.copy];
    if get_u64(copy, 0) != checksum(page, copy) {
        return Err("its checksum is wrong");
    }
    let count = get_u32(copy, COUNT) as usize;
    if count > MAX_ROWS {
        return Err("it has more than 16 rows");
    }
    let (rows, after) = copy[ROWS..].split_at(count * shape.row);
    let unused = (MAX_ROWS - count) * shape.row;
    let (info_size, info) = match format {
        Format::Previous => (0, SliceInfo::default()),
        Format::Current => (GANG_END - GANG, decode_info(&copy[GANG..GANG_END])),
    };
    if !is_zero(&after[..unused]) || !is_zero(&after[unused + info_size..]) {
        return Err("it has bytes after its last row");
    }
    let rows = rows.chunks_exact(shape.row).map(|bytes| decode_row(bytes, format));
    let rows = rows.collect::<Option<Vec<Row>>>().ok_or("one of its rows is invalid")?;
    if check_rows(&rows).is_err() {
        return Err("one of its rows has an invalid value");
    }
    Ok(Contents { format, active, generation: get_u32(copy, GENERATION), info, rows })
}

fn decode_info(bytes: &[u8]) -> SliceInfo {
    let mut gang = [0; 16];
    gang.copy_from_slice(&bytes[..16]);
    SliceInfo { gang: (gang != [0; 16]).then_some(gang) }
}

fn decode_row(bytes: &[u8], format: Format) -> Option<Row> {
    let (uuid, padding) = bytes[..UUID_SIZE].split_at(bytes.iter().position(|b| *b == 0)?);
    let limit = get_u64(bytes, MEMORY_LIMIT);
    let mut regime = [0; CONTEXT_MEMORY - REGIME];
    regime.copy_from_slice(&bytes[REGIME..CONTEXT_MEMORY]);
    let Regime { share, mode, priority } = Regime::decode(regime)?;
    let end = match format {
        Format::Previous => CONTEXT_MEMORY,
        Format::Current => ROW_END,
    };
    if !is_zero(padding) || !is_zero(&bytes[end..]) {
        return None;
    }
    let mut row = Row {
        memory_limit: (limit != NO_LIMIT).then_some(limit),
        share: (share != 0).then_some(share),
        mode,
        priority,
        ..Row::new(String::from_utf8(uuid.to_vec()).ok()?)
    };
    if format == Format::Current {
        row.context_memory = Some(get_u64(bytes, CONTEXT_MEMORY)).filter(|value| *value != 0);
        let memory = (0..MAX_INJECTED).map(|i| get_u64(bytes, INJECTED_MEMORY + 8 * i));
        row.injected_memory = memory.filter(|value| *value != 0).collect();
        let shares = bytes[INJECTED_SHARES..GRANULE].iter().filter(|value| **value != 0);
        row.injected_shares = shares.map(|value| u32::from(*value)).collect();
        row.granule = Some(get_u32(bytes, GRANULE)).filter(|value| *value != 0);
    }
    Some(row)
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
        if row.context_memory == Some(0) {
            let fix = "write at least 1 byte, or None if it is unknown";
            return Err(InvalidValue::new("context_memory", "0", fix));
        }
        if row.granule.is_some_and(|granule| granule < 1024 || !granule.is_power_of_two()) {
            let granule = row.granule.unwrap_or_default().to_string();
            let fix = "write a power of two from 1024 bytes on, or None for exact allocations";
            return Err(InvalidValue::new("granule", &granule, fix));
        }
        check_injected("injected_memory", &row.injected_memory, 1..NO_LIMIT, "at least 1 byte")?;
        check_injected("injected_shares", &row.injected_shares, 1..101, "1 to 100")?;
    }
    Ok(())
}

fn check_injected<T: Copy + PartialOrd + std::fmt::Display>(
    field: &str,
    values: &[T],
    range: std::ops::Range<T>,
    fix: &str,
) -> Result<(), InvalidValue> {
    if values.len() > MAX_INJECTED {
        let count = format!("{} values", values.len());
        return Err(InvalidValue::new(field, &count, "keep the four newest"));
    }
    match values.iter().find(|value| !range.contains(value)) {
        Some(value) => Err(InvalidValue::new(field, &value.to_string(), format!("write {fix}"))),
        None => Ok(()),
    }
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
