//! How long a kernel takes, by its name.

use std::collections::BTreeMap;

/// Kernel durations: by name, `*` for every other one. Empty: kernels take no time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    by_name: BTreeMap<String, u64>,
    other: u64,
}

impl Durations {
    /// From names and microseconds.
    pub fn new(microseconds: &BTreeMap<String, u64>) -> Self {
        let mut by_name: BTreeMap<String, u64> =
            microseconds.iter().map(|(name, us)| (name.clone(), us * 1000)).collect();
        let other = by_name.remove("*").unwrap_or(0);
        Self { by_name, other }
    }

    /// From `name=us,*=us`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut microseconds = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let parsed = part
                .rsplit_once('=')
                .and_then(|(name, us)| Some((name.trim(), us.trim().parse::<u64>().ok()?)));
            let (name, us) = parsed.ok_or_else(|| {
                format!("kernel duration {part:?}: write name=microseconds, or *=microseconds")
            })?;
            microseconds.insert(name.to_owned(), us);
        }
        Ok(Self::new(&microseconds))
    }

    /// Nanoseconds that the kernel of this name takes.
    pub fn of(&self, name: &str) -> u64 {
        self.by_name.get(name).copied().unwrap_or(self.other)
    }

    /// In the form that [`Durations::parse`] reads.
    pub fn to_text(&self) -> String {
        let mut parts: Vec<_> =
            self.by_name.iter().map(|(name, ns)| format!("{name}={}", ns / 1000)).collect();
        parts.push(format!("*={}", self.other / 1000));
        parts.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_before_the_star_and_text_survives_a_round_trip() {
        let durations = Durations::parse("gemm = 500, *=20,").expect("parse");
        assert_eq!((durations.of("gemm"), durations.of("relu")), (500_000, 20_000));
        assert_eq!(Durations::parse(&durations.to_text()), Ok(durations));
        assert_eq!(Durations::default().of("any"), 0);
        assert!(Durations::parse("gemm:5").expect_err("no equals sign").contains("gemm:5"));
    }
}
