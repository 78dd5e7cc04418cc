//! The clock's environment variables. No other module reads them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The settings from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `STUB_CLOCK`: the file that all processes of a world share; the first one creates it.
    /// Without the variable this library does nothing.
    pub file: OsString,
    /// `STUB_CLOCK_ROLE=observer`: this process reads the world's time and takes no part.
    pub observes: bool,
    /// `STUB_CLOCK_EXPECT`: time and threads stand still until so many processes have entered.
    /// Default: 1.
    pub expect: u32,
    /// `STUB_CLOCK_PLACE`: this process's position in the order in which processes run at equal
    /// times; a number below 2^31. Default: after all that have one, in the order of arrival.
    pub position: Option<u64>,
    /// `STUB_CLOCK_LATE_NS`: how much later than requested this process's threads continue after a
    /// sleep or a wake-up, in nanoseconds. Default: 0.
    pub late: u64,
}

impl Settings {
    /// Reads the environment; None where there is no `STUB_CLOCK`.
    pub fn from_environment() -> Result<Option<Self>, String> {
        let Some(file) = std::env::var_os("STUB_CLOCK") else { return Ok(None) };
        if file.as_bytes().contains(&0) || file.is_empty() {
            return Err("STUB_CLOCK is no path: name a file".into());
        }
        let role = std::env::var("STUB_CLOCK_ROLE").unwrap_or_default();
        let observes = match role.as_str() {
            "" => false,
            "observer" => true,
            other => {
                return Err(format!("STUB_CLOCK_ROLE={other}: write observer, or leave it out"));
            }
        };
        Ok(Some(Self {
            file,
            observes,
            expect: number("STUB_CLOCK_EXPECT", u64::from(u32::MAX))?.unwrap_or(1) as u32,
            position: number("STUB_CLOCK_PLACE", (1 << 31) - 1)?,
            late: number("STUB_CLOCK_LATE_NS", 1_000_000_000)?.unwrap_or(0),
        }))
    }
}

fn number(name: &str, most: u64) -> Result<Option<u64>, String> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) if number <= most => Ok(Some(number)),
        _ => Err(format!("{name}={text}: write a whole number up to {most}")),
    }
}
