//! Sizes and shares as text, and HAMi's variables, by the parsers that the preload library uses.

use crate::errors;
use crate::pages::{LimitRow, Named};
use hami_limits::{InvalidValue, Mode, Priority, Row, Source, Variables, variables};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::ffi::OsString;

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

/// The limits that HAMi's variables set for one card.
#[pyclass(module = "hami_py._native", frozen, get_all)]
#[derive(Default)]
pub struct HamiLimit {
    /// Bytes; None = no limit.
    memory: Option<u64>,
    /// Percent of the card's time, 1 to 99; None = no limit.
    share: Option<u32>,
    /// How the share holds; "hard" where there is none.
    mode: Named<Mode>,
    /// None = CUDA_TASK_PRIORITY is not set.
    priority: Option<Named<Priority>>,
}

#[pymethods]
impl HamiLimit {
    /// No limit.
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

/// The limits that HAMi's variables set, by card.
#[pyclass(module = "hami_py._native", frozen)]
pub struct HamiVariables {
    variables: Variables,
    priority: Option<Named<Priority>>,
}

#[pymethods]
impl HamiVariables {
    /// Parses the variables of an environment; others are ignored.
    #[new]
    fn new(environment: HashMap<String, Bound<'_, PyString>>) -> PyResult<Self> {
        // The bytes of a value that is not UTF-8 are lone surrogates in Python.
        let value = |name: &str| environment.get(name)?.extract::<OsString>().ok();
        Variables::parse(value)
            .and_then(|variables| {
                let priority = value(variables::TASK_PRIORITY).map(variables::parse_priority);
                Ok(Self { variables, priority: priority.transpose()?.map(Named) })
            })
            .map_err(|error| match environment.get(&error.field) {
                Some(value) => {
                    let field = PyString::new(value.py(), &error.field);
                    errors::invalid_value(&field, value, &error.fix)
                }
                None => errors::invalid(error),
            })
    }

    /// Whether the variables limit the memory or the time of any card.
    #[getter]
    fn set_a_limit(&self) -> bool {
        self.variables.set_a_limit()
    }

    /// The limits of the card of this number. Where the number is not known, the lowest of all.
    /// `beside` is the card's row in the limits page, if there is one.
    #[pyo3(signature = (number, beside=None))]
    fn limit(&self, number: Option<usize>, beside: Option<LimitRow>) -> HamiLimit {
        let (memory, share) = match beside {
            Some(row) => {
                let row = &Row::from(row);
                (
                    self.variables.memory_beside(number, row),
                    self.variables.share_beside(number, row),
                )
            }
            None => (self.variables.memory(number), self.variables.share(number)),
        };
        HamiLimit {
            memory,
            share: share.map(|share| share.share),
            mode: Named(share.map_or(Mode::Hard, |share| share.mode)),
            priority: self.priority,
        }
    }
}
