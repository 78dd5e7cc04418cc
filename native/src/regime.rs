//! How a card is shared, in Python's words.

use crate::errors;
use hami_limits::{InvalidValue, Mode, Priority};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::convert::Infallible;

/// A value that Python sees as a word.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Named<T>(pub T);

/// What Python names by a word.
pub trait Words: Copy + PartialEq + 'static {
    const FIELD: &'static str;
    const FIX: &'static str;
    const WORDS: &'static [(&'static str, Self)];
}

impl Words for Mode {
    const FIELD: &'static str = "mode";
    const FIX: &'static str = "write hard or soft";
    const WORDS: &'static [(&'static str, Self)] = &[("hard", Self::Hard), ("soft", Self::Soft)];
}

impl Words for Priority {
    const FIELD: &'static str = "priority";
    const FIX: &'static str = "write low, normal or high";
    const WORDS: &'static [(&'static str, Self)] =
        &[("low", Self::Low), ("normal", Self::Normal), ("high", Self::High)];
}

impl<T: Words> Named<T> {
    pub fn parse(text: &str) -> PyResult<Self> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, value)| Self(*value))
            .ok_or_else(|| errors::invalid(InvalidValue::new(T::FIELD, text, T::FIX)))
    }

    pub fn word(self) -> &'static str {
        T::WORDS.iter().find(|(_, value)| *value == self.0).map_or("", |(word, _)| *word)
    }
}

impl<T: Words> FromPyObject<'_, '_> for Named<T> {
    type Error = PyErr;

    fn extract(name: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Self::parse(name.extract::<&str>()?)
    }
}

impl<'py, T: Words> IntoPyObject<'py> for Named<T> {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyString::new(py, self.word()))
    }
}
