//! Reads a JSON list of node names in place, and looks the names up.
//!
//! In a large cluster each request has thousands of names; parsing them into strings takes longer
//! than a filter.

use crate::state::names::{Names, Numbers};
use crate::state::sequence::Walk;
use hami_limits::InvalidValue;
use std::ops::Range;

/// The position of a name in the text, without its quotes.
pub type Span = Range<u32>;

/// The names of a list and their numbers.
#[derive(Debug)]
pub struct List<'a> {
    json: &'a [u8],
    texts: Texts,
    numbers: Numbers,
}

/// The names of a list.
#[derive(Debug)]
pub enum Texts {
    /// The list is written as Go writes it, without escapes and blanks. The positions of the names.
    Plain(Vec<Span>),
    /// The list is written in another way. The names.
    Other(Vec<String>),
}

impl<'a> List<'a> {
    /// A list whose positions and numbers are known from before.
    pub fn known(json: &'a [u8], spans: Vec<Span>, numbers: Numbers) -> Self {
        Self { json, texts: Texts::Plain(spans), numbers }
    }

    pub(crate) fn read(json: &'a [u8], names: &mut Names) -> Result<Self, InvalidValue> {
        if let Some((spans, numbers)) = names.along(|names, walk| plain(json, names, walk)) {
            let numbers = names.numbers(numbers);
            return Ok(Self { json, texts: Texts::Plain(spans), numbers });
        }
        let texts: Vec<String> = serde_json::from_slice(json).map_err(|error| {
            InvalidValue::new("names", &error.to_string(), "write a list of names")
        })?;
        let numbers = names.get_all(&texts);
        Ok(Self { json, texts: Texts::Other(texts), numbers })
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.numbers.each().len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// A part of the text with the quotes around it.
    pub fn quoted(&self, place: &Span) -> &'a [u8] {
        &self.json[place.start as usize - 1..=place.end as usize]
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

/// Reads a list that is written as Go writes it.
fn plain(json: &[u8], names: &Names, walk: &mut Walk<'_>) -> Option<(Vec<Span>, Vec<Option<u32>>)> {
    u32::try_from(json.len()).ok()?;
    let inner = json.strip_prefix(b"[")?.strip_suffix(b"]")?;
    // A name has about a dozen bytes.
    let (mut spans, mut numbers) =
        (Vec::with_capacity(inner.len() / 16), Vec::with_capacity(inner.len() / 16));
    let mut at = 0;
    loop {
        let rest = inner.get(at..)?.strip_prefix(b"\"")?;
        let is = |place| names.plain(place).is_some_and(|name| is_first(rest, name));
        let (number, length) = if let Some(place) = walk.step(is) {
            let (number, length) = names.known(place);
            (Some(number), length)
        } else {
            let name = first(rest)?;
            (names.jump(walk, name), name.len())
        };
        let start = at + 2;
        spans.push(start as u32..(start + length) as u32);
        numbers.push(number);
        at += length + 2;
        match inner.get(at) {
            None => break,
            Some(b',') => at += 1,
            Some(_) => return None,
        }
    }
    Some((spans, numbers))
}

/// Whether the text starts with this name and a quote.
#[inline]
fn is_first(text: &[u8], name: &[u8]) -> bool {
    text.get(name.len()) == Some(&b'"') && text.starts_with(name)
}

/// The name at the start of the text, if it needs no escapes.
fn first(text: &[u8]) -> Option<&str> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
    if text[end] == b'"' { str::from_utf8(&text[..end]).ok() } else { None }
}
