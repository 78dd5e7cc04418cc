//! Sizes and shares as people write them.
//!
//! The same limit can come from an option, a pod's resource, or a variable of another project.
//! There is one grammar for all of them, a whole number and a unit, and one table of what each
//! source adds to it. A value that cannot be understood is an error that says how to write it; it
//! never means "no limit". docs/configuration.md has the grammar for users.

use std::fmt;

/// The source of a value. It decides which spellings are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// hami-py's own options and Python arguments: a unit is required.
    Api,
    /// Variables such as `CUDA_DEVICE_MEMORY_LIMIT`: a bare size is bytes, `k`, `m`, `g` are
    /// binary.
    HamiEnv,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

type Units = &'static [(&'static str, u64)];

/// Units that every source allows. `format_memory` writes the first one of each size.
const UNITS: Units = &[
    ("TiB", TIB),
    ("Ti", TIB),
    ("GiB", GIB),
    ("Gi", GIB),
    ("MiB", MIB),
    ("Mi", MIB),
    ("KiB", KIB),
    ("Ki", KIB),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl Source {
    /// The units that this source allows beside [`UNITS`]; the empty unit is a bare number.
    const fn own_units(self) -> Units {
        match self {
            Source::Api => &[],
            Source::HamiEnv => {
                &[("", 1), ("k", KIB), ("K", KIB), ("m", MIB), ("M", MIB), ("g", GIB), ("G", GIB)]
            }
        }
    }

    /// In `HAMi`'s variables 0 means "no limit".
    const fn zero_is_no_limit(self) -> bool {
        matches!(self, Source::HamiEnv)
    }
}

/// A value that was refused: its field, its text, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// The option, resource or variable, as the caller named it.
    pub field: String,
    /// The text, unchanged.
    pub value: String,
    /// A value that is valid.
    pub fix: String,
}

impl InvalidValue {
    /// A refusal of `value` in `field`, with what to write instead.
    pub fn new(field: &str, value: &str, fix: impl Into<String>) -> Self {
        Self { field: field.to_owned(), value: value.to_owned(), fix: fix.into() }
    }
}

impl fmt::Display for InvalidValue {
    /// One line, whatever the value holds: it may come from a hostile environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        let shown: String = self.value.chars().take(SHOWN).collect();
        let more = if shown.len() < self.value.len() { "…" } else { "" };
        write!(f, "{}: {shown:?}{more} is refused: {}", self.field, self.fix)
    }
}

impl std::error::Error for InvalidValue {}

const MEMORY_EXAMPLE: &str = "write a whole number and a unit, like 4GiB or 4096MiB";
const NO_LIMIT: &str = "write none for no limit";
const SHARE_EXAMPLE: &str = "write a whole percentage from 1 to 100, like 30 or 30%";

/// The bytes that `text` means. `None` is "no limit", which only [`Source::HamiEnv`] can mean
/// (`0`).
///
/// Only whole numbers are allowed: no sign, blank, fraction or exponent. A leading zero is refused,
/// because people read `010g` as ten and C reads it as eight.
pub fn parse_memory(text: &str, source: Source, field: &str) -> Result<Option<u64>, InvalidValue> {
    let refuse = |fix: String| Err(InvalidValue::new(field, text, fix));
    let (digits, unit) = split_number(text);
    if digits.is_empty() {
        return refuse(memory_fix(text, source));
    }
    let known = source.own_units().iter().chain(UNITS).find(|(name, _)| *name == unit);
    let Some((_, unit_bytes)) = known else {
        return refuse(memory_fix(text, source));
    };
    if let Some(fix) = leading_zero_fix(digits, unit) {
        return refuse(fix);
    }
    // u64::MAX is the page's "no limit" and therefore no size.
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_bytes));
    match bytes.filter(|bytes| *bytes != u64::MAX) {
        None => refuse("it must be less than 16777216TiB".to_owned()),
        Some(0) if source.zero_is_no_limit() => Ok(None),
        Some(0) => refuse(NO_LIMIT.to_owned()),
        bytes => Ok(bytes),
    }
}

/// The percentage that `text` means, 1 to 100. `None` is "no limit", which only [`Source::HamiEnv`]
/// can mean (`0`).
pub fn parse_share(text: &str, source: Source, field: &str) -> Result<Option<u32>, InvalidValue> {
    let refuse = |fix: String| Err(InvalidValue::new(field, text, fix));
    let (digits, unit) = split_number(text);
    if digits.is_empty() || !matches!(unit, "" | "%") {
        return refuse(SHARE_EXAMPLE.to_owned());
    }
    if let Some(fix) = leading_zero_fix(digits, unit) {
        return refuse(fix);
    }
    match digits.parse::<u32>() {
        Ok(0) if source.zero_is_no_limit() => Ok(None),
        Ok(0) => refuse(NO_LIMIT.to_owned()),
        Ok(percent @ 1..=100) => Ok(Some(percent)),
        _ => refuse(SHARE_EXAMPLE.to_owned()),
    }
}

/// The shortest exact text, e.g. `4GiB`, `1536MiB`, `4GB`; [`parse_memory`] reads it back.
///
/// A number of bytes that no unit divides, and 0, has no such text: it is written as `1001 bytes`.
pub fn format_memory(bytes: u64) -> String {
    UNITS
        .iter()
        .filter(|(_, unit)| bytes != 0 && bytes.is_multiple_of(*unit))
        .filter(|(name, _)| name.ends_with('B'))
        .map(|(name, unit)| format!("{}{name}", bytes / unit))
        .min_by_key(String::len)
        .unwrap_or_else(|| format!("{bytes} bytes"))
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn leading_zero_fix(digits: &str, unit: &str) -> Option<String> {
    let stripped = digits.trim_start_matches('0');
    match stripped {
        _ if digits.len() == 1 || !digits.starts_with('0') => None,
        "" => Some(format!("write 0{unit}")),
        _ => Some(format!("write {stripped}{unit}, without the leading zero")),
    }
}

/// How to write the value that was probably meant.
fn memory_fix(text: &str, source: Source) -> String {
    let compact: String = text.split_whitespace().collect();
    let (digits, unit) = split_number(&compact);
    let number = digits.trim_start_matches('0');
    if compact.ends_with('%') {
        return "a percentage is a share; write memory as a size, like 4GiB".to_owned();
    }
    if unit.starts_with('.') {
        return "write a whole number, like 1536MiB for 1.5GiB".to_owned();
    }
    if number.is_empty() && compact == digits && !digits.is_empty() {
        return NO_LIMIT.to_owned();
    }
    if number.is_empty() {
        return MEMORY_EXAMPLE.to_owned();
    }
    if unit.is_empty() && !source.own_units().iter().any(|(name, _)| name.is_empty()) {
        return format!("add a unit: {number}MiB");
    }
    let meant = match unit.to_ascii_lowercase().as_str() {
        "k" => Some("KiB"),
        "m" => Some("MiB"),
        "g" => Some("GiB"),
        "t" => Some("TiB"),
        "" => Some(""),
        lower => UNITS.iter().map(|(name, _)| *name).find(|name| name.eq_ignore_ascii_case(lower)),
    };
    meant.map_or(MEMORY_EXAMPLE.to_owned(), |unit| format!("write {number}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::Source::{Api, HamiEnv};
    use super::*;

    fn memory(text: &str, source: Source) -> Result<Option<u64>, String> {
        parse_memory(text, source, "gpumem").map_err(|e| e.fix)
    }

    #[test]
    fn units_mean_the_same_from_every_source() {
        for source in [Api, HamiEnv] {
            for (text, bytes) in [
                ("1KiB", 1024),
                ("1Ki", 1024),
                ("1KB", 1000),
                ("4096MiB", 4 << 30),
                ("4096Mi", 4 << 30),
                ("4096MB", 4_096_000_000),
                ("4GiB", 4 << 30),
                ("4Gi", 4 << 30),
                ("4GB", 4_000_000_000),
                ("2TiB", 2 << 40),
                ("2Ti", 2 << 40),
                ("2TB", 2_000_000_000_000),
            ] {
                assert_eq!(memory(text, source), Ok(Some(bytes)), "{text} from {source:?}");
            }
        }
    }

    #[test]
    fn each_source_adds_its_own_spellings_and_no_other() {
        assert_eq!(memory("4294967296", HamiEnv), Ok(Some(4 << 30)));
        for (text, bytes) in [("8k", 8 << 10), ("8M", 8 << 20), ("4096m", 4 << 30), ("4G", 4 << 30)]
        {
            assert_eq!(memory(text, HamiEnv), Ok(Some(bytes)), "{text}");
            assert!(memory(text, Api).is_err(), "{text}");
        }
        assert_eq!(memory("4096", Api), Err("add a unit: 4096MiB".to_owned()));
        assert_eq!(memory("4096m", Api), Err("write 4096MiB".to_owned()));
        assert_eq!(memory("4t", HamiEnv), Err("write 4TiB".to_owned()));
    }

    #[test]
    fn a_value_that_is_not_understood_is_never_no_limit() {
        let bad = [
            "",
            " ",
            "abc",
            "-1",
            "+4GiB",
            "4e9",
            "1.5GiB",
            ".5GiB",
            "50%",
            " 4GiB",
            "4GiB ",
            "4 GiB",
            "4gib",
            "4GIB",
            "4PiB",
            "4iB",
            "0x10",
            "4GiB\n",
            "4\u{a0}GiB",
            "٤GiB",
            "4GiBGiB",
            "\0",
            "010GiB",
            "00",
            "0GiB0",
        ];
        for text in bad {
            for source in [Api, HamiEnv] {
                let fix = memory(text, source).expect_err(text);
                assert!(!fix.is_empty() && !fix.contains('\n'), "{text:?}: {fix}");
            }
        }
        assert_eq!(
            memory("010g", HamiEnv),
            Err("write 10g, without the leading zero".to_owned()),
            "HAMi-core reads this as octal"
        );
        assert_eq!(memory("4 gib", Api), Err("write 4GiB".to_owned()));
    }

    #[test]
    fn a_size_beyond_the_page_is_refused() {
        for text in ["18446744073709551615", "18446744073709551616", "99999999999999999999999g"] {
            assert!(memory(text, HamiEnv).is_err(), "{text}");
        }
        assert_eq!(memory("18446744073709551614", HamiEnv), Ok(Some(u64::MAX - 1)));
        assert_eq!(memory("16777215TiB", Api), Ok(Some(16_777_215 << 40)));
        assert!(memory("16777216TiB", Api).is_err());
    }

    #[test]
    fn zero_is_no_limit_only_in_hamis_variables() {
        assert_eq!(memory("0", HamiEnv), Ok(None));
        assert_eq!(memory("0g", HamiEnv), Ok(None));
        assert!(memory("0MiB", Api).is_err());
    }

    #[test]
    fn shares() {
        let share = |text, source| parse_share(text, source, "gpucores").map_err(|e| e.fix);
        for source in [Api, HamiEnv] {
            assert_eq!(share("30", source), Ok(Some(30)));
            assert_eq!(share("100%", source), Ok(Some(100)));
            for bad in ["", "%", "101", "-1", "1.5", "30 %", "030", "4294967297", "thirty", "30%%"]
            {
                assert!(share(bad, source).is_err(), "{bad} from {source:?}");
            }
        }
        assert_eq!(share("0", HamiEnv), Ok(None));
        assert_eq!(share("0%", HamiEnv), Ok(None));
        assert!(share("0", Api).is_err());
    }

    #[test]
    fn formatted_sizes_are_short_and_read_back() {
        for (bytes, text) in [
            (4 << 30, "4GiB"),
            (1536 << 20, "1536MiB"),
            (3000 << 20, "3000MiB"),
            (4_000_000_000, "4GB"),
            (2 << 40, "2TiB"),
            (1024, "1KiB"),
            (1000, "1KB"),
        ] {
            assert_eq!(format_memory(bytes), text);
            assert_eq!(memory(text, Api), Ok(Some(bytes)));
        }
        assert_eq!(format_memory(1001), "1001B");
        assert_eq!(format_memory(0), "0 bytes");
    }

    #[test]
    fn an_error_is_one_line_that_names_field_value_and_fix() {
        let error = parse_memory("4096m", Api, "gpumem").unwrap_err();
        assert_eq!(error.to_string(), r#"gpumem: "4096m" is refused: write 4096MiB"#);
        let long = format!("4\n{}", "x".repeat(10_000));
        let line = parse_memory(&long, Api, "gpumem").unwrap_err().to_string();
        assert!(line.len() < 200 && !line.contains('\n'), "{line}");
    }
}
