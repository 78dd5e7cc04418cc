//! Sizes and shares.

use crate::errors;
use hami_limits::{InvalidValue, Source};
use pyo3::prelude::*;

/// Who wrote the value, as Python names it.
pub struct Written(Source);

impl FromPyObject<'_, '_> for Written {
    type Error = PyErr;

    fn extract(name: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match name.extract::<&str>()? {
            "api" => Ok(Self(Source::Api)),
            "hami-env" => Ok(Self(Source::HamiEnv)),
            other => {
                let fix = "write api or hami-env";
                Err(errors::invalid(InvalidValue::new("source", other, fix)))
            }
        }
    }
}

/// Bytes meant by `text`, by the grammar of docs/configuration.md; 0 is no limit, which only
/// HAMi's variables can say.
#[pyfunction]
pub fn parse_memory(text: &str, source: Written, field: &str) -> PyResult<u64> {
    let bytes = hami_limits::parse_memory(text, source.0, field).map_err(errors::invalid)?;
    Ok(bytes.unwrap_or(0))
}

/// Percent meant by `text`: 1 to 100; 0 is no limit, which only HAMi's variables
/// can say.
#[pyfunction]
pub fn parse_share(text: &str, source: Written, field: &str) -> PyResult<u32> {
    let percent = hami_limits::parse_share(text, source.0, field).map_err(errors::invalid)?;
    Ok(percent.unwrap_or(0))
}

/// The shortest exact text, e.g. `4GiB` or `1536MiB`; `parse_memory` reads it back.
#[pyfunction]
pub fn format_memory(bytes: u64) -> String {
    hami_limits::format_memory(bytes)
}
