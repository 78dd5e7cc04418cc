//! HAMi's variables, parsed by the parser that the preload library uses.

use crate::errors;
use crate::regime::Named;
use hami_limits::{Mode, Priority, Variables, variables};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::ffi::OsString;

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
    #[pyo3(signature = (number))]
    fn limit(&self, number: Option<usize>) -> HamiLimit {
        let share = self.variables.share(number);
        HamiLimit {
            memory: self.variables.memory(number),
            share: share.map(|share| share.share),
            mode: Named(share.map_or(Mode::Hard, |share| share.mode)),
            priority: self.priority,
        }
    }
}
