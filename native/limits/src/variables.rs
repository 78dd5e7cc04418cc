//! HAMi's variables: limits that a cluster sets for a program, under HAMi's names.
//!
//! | variable | meaning |
//! |---|---|
//! | `CUDA_DEVICE_MEMORY_LIMIT`, `…_<i>` | the memory limit of every card, or of the i-th |
//! | `CUDA_DEVICE_SM_LIMIT`, `…_<i>` | the compute share in percent; 0 or 100 is no limit |
//! | `GPU_CORE_UTILIZATION_POLICY` | `force`: the shares are hard; `disable`: no share holds; otherwise they are soft |
//! | `CUDA_TASK_PRIORITY` | 0 is high, 1 is normal, any other whole number is low; only Python reads it |
//!
//! The preload library reads the others in the limited program. The Python package reads all of
//! them, to show the same limits and to set them on new slices. Both call this parser, so they
//! cannot disagree.
//!
//! Inside a slice the variables bind the innermost slice only and can only lower its limits: other
//! processes live in the slices around it. A value that the control plane has injected itself, and
//! recorded in the limits page, says nothing new and sets no limit: the page may have changed since.
//! Without a limits page the variables are the limit. The caller decides which card the `i` of `…_<i>` is: row i of the innermost limits page, or without a page
//! the machine's i-th card, as in HAMi.

use crate::page::{MAX_ROWS, Mode, Priority, Row};
use crate::quantity::{InvalidValue, Source, parse_memory, parse_share};
use std::ffi::OsString;

/// The memory limit of every card; with `_<i>` behind it that of the i-th.
pub const MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";
/// The compute share on every card; with `_<i>` behind it that on the i-th.
pub const SHARE_LIMIT: &str = "CUDA_DEVICE_SM_LIMIT";
/// How the shares hold.
pub const UTILIZATION_POLICY: &str = "GPU_CORE_UTILIZATION_POLICY";
/// The priority of a new slice. The preload library ignores it.
pub const TASK_PRIORITY: &str = "CUDA_TASK_PRIORITY";

/// The limits that HAMi's variables set, by card.
#[derive(Clone, Debug)]
pub struct Variables {
    memory: PerCard<u64>,
    shares: PerCard<u32>,
    mode: Mode,
}

/// The compute share that the variables set for a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableShare {
    /// Percent of the card's time, 1 to 99.
    pub share: u32,
    /// How the share holds.
    pub mode: Mode,
}

impl Variables {
    /// Parses the variables that `variable` returns by name; `None` stands for one that is not set.
    ///
    /// A value that cannot be understood is an error, also a share that the policy disables.
    pub fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, InvalidValue> {
        let memory =
            PerCard::parse(&variable, MEMORY_LIMIT, |text, name| parse_memory(text, HAMI, name))?;
        let policy = variable(UTILIZATION_POLICY)
            .map(|value| utf8(value, UTILIZATION_POLICY))
            .transpose()?;
        let shares = PerCard::parse(&variable, SHARE_LIMIT, |text, name| {
            // HAMi has two ways to write that there is no limit: 0 and 100.
            Ok(parse_share(text, HAMI, name)?.filter(|share| *share < 100))
        })?;
        let (shares, mode) = match policy.as_deref() {
            Some("disable" | "DISABLE") => (PerCard::default(), Mode::Hard),
            Some("force" | "FORCE") => (shares, Mode::Hard),
            _ => (shares, Mode::Soft),
        };
        Ok(Self { memory, shares, mode })
    }

    /// Whether they limit the memory or the time of any card.
    pub fn set_a_limit(&self) -> bool {
        self.memory(None).is_some() || self.share(None).is_some()
    }

    /// The memory limit of the i-th card, in bytes. Where the index is not known, the lowest of
    /// all.
    pub fn memory(&self, index: Option<usize>) -> Option<u64> {
        self.memory.of(index)
    }

    /// The same beside a row of a limits page: `None` if the control plane has injected the value.
    pub fn memory_beside(&self, index: Option<usize>, row: &Row) -> Option<u64> {
        self.memory(index).filter(|limit| row.injected_memory != Some(*limit))
    }

    /// The share of the i-th card. Where the index is not known, the lowest of all.
    pub fn share(&self, index: Option<usize>) -> Option<VariableShare> {
        self.shares.of(index).map(|share| VariableShare { share, mode: self.mode })
    }

    /// The same beside a row of a limits page: `None` if the control plane has injected the value.
    pub fn share_beside(&self, index: Option<usize>, row: &Row) -> Option<VariableShare> {
        self.share(index).filter(|set| row.injected_share != Some(set.share))
    }
}

/// The priority that a value of [`TASK_PRIORITY`] means. The preload library does not read it.
pub fn parse_priority(value: OsString) -> Result<Priority, InvalidValue> {
    let text = utf8(value, TASK_PRIORITY)?;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let fix = "write 0 for high, 1 for normal, or another whole number for low";
        return Err(InvalidValue::new(TASK_PRIORITY, &text, fix));
    }
    Ok(match digits.trim_start_matches('0') {
        "" => Priority::High,
        "1" if !text.starts_with('-') => Priority::Normal,
        _ => Priority::Low,
    })
}

/// The variables that set memory limits: the one for every card, then the one of each card.
pub fn memory_names() -> impl Iterator<Item = String> {
    names(MEMORY_LIMIT)
}

/// The variables that set shares: the one for every card, then the one of each card.
pub fn share_names() -> impl Iterator<Item = String> {
    names(SHARE_LIMIT)
}

const HAMI: Source = Source::HamiEnv;

/// A limit for every card and those for single cards; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
struct PerCard<T> {
    every: Option<T>,
    /// The limit of each card, which is `every` unless the card has a variable of its own.
    by_index: [Option<T>; MAX_ROWS],
}

impl<T: Copy + Ord> PerCard<T> {
    fn parse(
        variable: impl Fn(&str) -> Option<OsString>,
        prefix: &str,
        parse: impl Fn(&str, &str) -> Result<Option<T>, InvalidValue>,
    ) -> Result<Self, InvalidValue> {
        let limit = |name: &str, default| match variable(name) {
            Some(value) => parse(&utf8(value, name)?, name),
            None => Ok(default),
        };
        let every = limit(prefix, None)?;
        let mut by_index = [every; MAX_ROWS];
        for (place, name) in by_index.iter_mut().zip(names(prefix).skip(1)) {
            *place = limit(&name, every)?;
        }
        Ok(Self { every, by_index })
    }

    fn of(&self, index: Option<usize>) -> Option<T> {
        match index {
            Some(index) => self.by_index.get(index).copied().unwrap_or(self.every),
            None => self.by_index.iter().copied().chain([self.every]).flatten().min(),
        }
    }
}

fn names(prefix: &str) -> impl Iterator<Item = String> {
    let of_cards = (0..MAX_ROWS).map(move |index| format!("{prefix}_{index}"));
    [prefix.to_owned()].into_iter().chain(of_cards)
}

fn utf8(value: OsString, name: &str) -> Result<String, InvalidValue> {
    value
        .into_string()
        .map_err(|value| InvalidValue::new(name, &value.to_string_lossy(), "use UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn parse(set: &[(&str, &str)]) -> Result<Variables, InvalidValue> {
        let set: HashMap<&str, &str> = set.iter().copied().collect();
        Variables::parse(|name| set.get(name).map(OsString::from))
    }

    #[test]
    fn a_card_has_its_own_limit_or_that_of_every_card() {
        let variables = parse(&[
            ("CUDA_DEVICE_MEMORY_LIMIT", "8g"),
            ("CUDA_DEVICE_MEMORY_LIMIT_1", "2g"),
            ("CUDA_DEVICE_MEMORY_LIMIT_2", "0"),
            ("CUDA_DEVICE_MEMORY_LIMIT_16", "not one of them"),
        ])
        .unwrap();
        let gib = |index| variables.memory(index).map(|bytes| bytes >> 30);
        assert_eq!(
            [0, 1, 2, 15, 16].map(|i| gib(Some(i))),
            [8, 2, 0, 8, 8].map(|g| match g {
                0 => None,
                g => Some(g),
            })
        );
        assert_eq!(gib(None), Some(2), "the lowest, where the index is not known");
        assert!(variables.set_a_limit());
    }

    #[test]
    fn the_policy_decides_how_a_share_holds() {
        for (policy, mode) in [
            (None, Some(Mode::Soft)),
            (Some("default"), Some(Mode::Soft)),
            (Some("Force"), Some(Mode::Soft)),
            (Some("force"), Some(Mode::Hard)),
            (Some("FORCE"), Some(Mode::Hard)),
            (Some("disable"), None),
            (Some("DISABLE"), None),
        ] {
            let mut set = vec![("CUDA_DEVICE_SM_LIMIT", "90"), ("CUDA_DEVICE_SM_LIMIT_1", "30")];
            set.extend(policy.map(|policy| (UTILIZATION_POLICY, policy)));
            let variables = parse(&set).unwrap();
            let share = |share| mode.map(|mode| VariableShare { share, mode });
            assert_eq!(variables.share(Some(0)), share(90), "{policy:?}");
            assert_eq!(variables.share(Some(1)), share(30), "{policy:?}");
            assert_eq!(variables.share(None), share(30), "{policy:?}");
            assert_eq!(variables.set_a_limit(), mode.is_some());
        }
    }

    #[test]
    fn nought_and_a_hundred_percent_are_no_limit() {
        let variables =
            parse(&[("CUDA_DEVICE_SM_LIMIT", "100"), ("CUDA_DEVICE_SM_LIMIT_1", "0")]).unwrap();
        assert_eq!([None, Some(0), Some(1)].map(|index| variables.share(index)), [None; 3]);
        assert!(!variables.set_a_limit());
        assert!(!parse(&[]).unwrap().set_a_limit());
    }

    #[test]
    fn a_value_that_cannot_be_understood_is_named() {
        for (name, value) in [
            ("CUDA_DEVICE_MEMORY_LIMIT", "lots"),
            ("CUDA_DEVICE_MEMORY_LIMIT_15", ""),
            ("CUDA_DEVICE_SM_LIMIT_3", "101"),
        ] {
            let error = parse(&[(name, value), (UTILIZATION_POLICY, "disable")]).unwrap_err();
            assert_eq!((error.field.as_str(), error.value.as_str()), (name, value));
        }
        for name in [MEMORY_LIMIT, UTILIZATION_POLICY, SHARE_LIMIT] {
            let bytes = OsStr::from_bytes(b"4g\xff").to_owned();
            let error = Variables::parse(|asked| (asked == name).then(|| bytes.clone()));
            assert_eq!(error.unwrap_err().fix, "use UTF-8 text", "{name}");
        }
    }

    #[test]
    fn priorities() {
        let priority = |text: &str| parse_priority(text.into()).map_err(|error| error.value);
        for (text, meant) in [
            ("0", Priority::High),
            ("-0", Priority::High),
            ("1", Priority::Normal),
            ("+01", Priority::Normal),
            ("2", Priority::Low),
            ("-1", Priority::Low),
            ("99999999999999999999", Priority::Low),
        ] {
            assert_eq!(priority(text), Ok(meant), "{text}");
        }
        for text in ["", "high", "0.5", "+", "1 ", "\u{660}"] {
            assert_eq!(priority(text), Err(text.to_owned()));
        }
    }
}
