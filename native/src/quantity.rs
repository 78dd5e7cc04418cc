//! Sizes and shares as text: the grammar that the preload library uses.

use crate::errors;
use hami_limits::{InvalidValue, Source};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The source of a value, as Python names it.
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

/// Bytes meant by `text`, by the grammar of docs/configuration.md; None is no limit, which only
/// HAMi's variables can say.
#[pyfunction]
pub fn parse_memory(
    text: &Bound<'_, PyString>,
    source: Written,
    field: &Bound<'_, PyString>,
) -> PyResult<Option<u64>> {
    parse(text, source, field, hami_limits::parse_memory)
}

/// Percent meant by `text`, 1 to 100; None is no limit, which only HAMi's variables can say.
#[pyfunction]
pub fn parse_share(
    text: &Bound<'_, PyString>,
    source: Written,
    field: &Bound<'_, PyString>,
) -> PyResult<Option<u32>> {
    parse(text, source, field, hami_limits::parse_share)
}

type Parser<T> = fn(&str, Source, &str) -> Result<Option<T>, InvalidValue>;

fn parse<T>(
    text: &Bound<'_, PyString>,
    source: Written,
    field: &Bound<'_, PyString>,
    parser: Parser<T>,
) -> PyResult<Option<T>> {
    parser(&text.to_string_lossy(), source.0, &field.to_string_lossy())
        .map_err(|error| errors::invalid_value(field, text, &error.fix))
}

/// The shortest exact text, e.g. `4GiB` or `1536MiB`; `parse_memory` reads it back.
#[pyfunction]
pub fn format_memory(bytes: u64) -> String {
    hami_limits::format_memory(bytes)
}
