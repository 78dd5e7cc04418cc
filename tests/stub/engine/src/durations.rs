//! How long a kernel takes, by its name.
//!
//! A table has durations for names ([`Durations`]). For a name that is not in the table, the ending
//! of the name can set the duration ([`ending`]).

use serde::Deserialize;
use std::collections::BTreeMap;

/// The duration of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds.
    pub ns: u64,
    /// Whether they count for each block, not for the whole launch.
    pub is_per_block: bool,
}

/// A duration in a command of the control socket: microseconds, or an object with one named number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Entry {
    /// Microseconds per launch.
    Plain(u64),
    /// The same, by name.
    PerLaunch(PerLaunch),
    /// By the size of the grid.
    PerBlock(PerBlock),
}

/// `{"us": 500}`
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerLaunch {
    us: u64,
}

/// `{"ns_per_block": 20}`
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerBlock {
    ns_per_block: u64,
}

impl From<Entry> for Cost {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Plain(us) | Entry::PerLaunch(PerLaunch { us }) => {
                Self { ns: us.saturating_mul(1000), is_per_block: false }
            }
            Entry::PerBlock(PerBlock { ns_per_block }) => {
                Self { ns: ns_per_block, is_per_block: true }
            }
        }
    }
}

impl Cost {
    /// Nanoseconds of a launch of so many blocks.
    pub fn of(self, blocks: u64) -> u64 {
        if self.is_per_block { self.ns.saturating_mul(blocks) } else { self.ns }
    }

    fn parse(text: &str) -> Option<Self> {
        let entry = match text.strip_suffix("/block") {
            Some(ns) => Entry::PerBlock(PerBlock { ns_per_block: ns.trim().parse().ok()? }),
            None => Entry::Plain(text.parse().ok()?),
        };
        Some(entry.into())
    }

    fn to_text(self) -> String {
        if self.is_per_block { format!("{}/block", self.ns) } else { (self.ns / 1000).to_string() }
    }
}

/// The meaning of a name's ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Nanoseconds of a launch.
    pub ns: u64,
    /// The number of participants of a collective; 0: it is not a collective.
    pub meets: u32,
    /// Whether the participants are streams. Otherwise they are cards.
    pub by_stream: bool,
}

/// `…_<N>us` lasts N microseconds. `…_<N>us_meets<K>` is a collective of K cards that lasts N
/// microseconds once all have arrived, `…_<N>us_meets<K>_streams` one of K streams. `None` for
/// other names.
pub fn ending(name: &str) -> Option<Ending> {
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let by_stream = name.ends_with("_streams");
    let collective = name
        .strip_suffix("_streams")
        .unwrap_or(name)
        .rsplit_once("_meets")
        .and_then(|(timed, digits)| Some((timed, number(digits).filter(|meets| *meets > 0)?)));
    let (timed, meets) = collective.unwrap_or((name, 0));
    let (_, digits) = timed.strip_suffix("us")?.rsplit_once('_')?;
    Some(Ending { ns: u64::from(number(digits)?) * 1000, meets, by_stream })
}

/// Kernel durations by name, and `*` for all other names. In an empty table only kernels with a
/// duration in their names take time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    by_name: BTreeMap<String, Cost>,
    other: Cost,
}

impl Durations {
    /// From names and durations.
    pub fn new<C: Copy + Into<Cost>>(costs: &BTreeMap<String, C>) -> Self {
        let costs = costs.iter().map(|(name, cost)| (name.clone(), (*cost).into()));
        let mut by_name: BTreeMap<String, Cost> = costs.collect();
        let other = by_name.remove("*").unwrap_or_default();
        Self { by_name, other }
    }

    /// From `name=us,name=ns/block,*=us`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut costs: BTreeMap<String, Cost> = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let parsed = part
                .rsplit_once('=')
                .and_then(|(name, cost)| Some((name.trim(), Cost::parse(cost.trim())?)));
            let (name, cost) = parsed.ok_or_else(|| {
                format!(
                    "kernel duration {part:?}: write name=microseconds, name=nanoseconds/block or \
                     *=microseconds"
                )
            })?;
            costs.insert(name.to_owned(), cost);
        }
        Ok(Self::new(&costs))
    }

    /// The duration of the kernel of this name: the table's entry, else the name's ending, else the
    /// table's `*`.
    pub fn of(&self, name: &str) -> Cost {
        let by_table = self.by_name.get(name).copied();
        let by_ending = || ending(name).map(|ending| Cost { ns: ending.ns, is_per_block: false });
        by_table.or_else(by_ending).unwrap_or(self.other)
    }

    /// In the form that [`Durations::parse`] reads.
    pub fn to_text(&self) -> String {
        let rows = self.by_name.iter().map(|(name, cost)| format!("{name}={}", cost.to_text()));
        let other = format!("*={}", self.other.to_text());
        rows.chain([other]).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_before_endings_and_these_before_the_star_and_text_survives_a_round_trip() {
        let durations = Durations::parse("gemm = 500, a_7us=3, *=20,relu=30/block").expect("parse");
        let ns = |name| durations.of(name).of(10);
        assert_eq!((ns("gemm"), ns("other"), ns("relu")), (500_000, 20_000, 300));
        assert_eq!((ns("a_7us"), ns("b_7us"), ns("7us")), (3000, 7000, 20_000));
        assert_eq!(Durations::parse(&durations.to_text()), Ok(durations));
        assert_eq!(Durations::default().of("any").of(1), 0);
        for wrong in ["gemm:5", "gemm=soon", "gemm=5/grid", "gemm=-5"] {
            assert!(Durations::parse(wrong).expect_err("no duration").contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_control_sockets_forms_are_the_same_thing() {
        let table = r#"{"a": 5, "b": {"us": 5}, "c": {"ns_per_block": 20}}"#;
        let table: BTreeMap<String, Entry> = serde_json::from_str(table).expect("valid");
        let durations = Durations::new(&table);
        assert_eq!(durations.of("a"), durations.of("b"));
        assert_eq!((durations.of("a").of(3), durations.of("c").of(3)), (5000, 60));
        for wrong in [r#"{"ms": 1}"#, r#"{"us": 1, "ns_per_block": 1}"#, "-1", "\"5\""] {
            assert!(serde_json::from_str::<Entry>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_ending_is_a_number_of_microseconds() {
        let timed = |us: u64, meets| Some(Ending { ns: us * 1000, meets, by_stream: false });
        assert_eq!(ending("spin_50us"), timed(50, 0));
        assert_eq!(ending("all_reduce_50us_meets4"), timed(50, 4));
        let by_stream = ending("all_reduce_50us_meets2_streams");
        assert_eq!(by_stream, Some(Ending { ns: 50_000, meets: 2, by_stream: true }));
        let none =
            ["spin_us", "spin50us", "spin_50us_", "spin_5ms", "x_meets2", "a_+5us", "us", ""];
        for plain in none.into_iter().chain(["spin_50us_streams", "_streams"]) {
            assert_eq!(ending(plain), None, "{plain}");
        }
        assert_eq!(ending("a_5us_meets0"), None);
    }
}
