//! [`VERSIONS`] without pointers.
//!
//! The loader writes to each page with pointers when it loads a library, also into programs that
//! never look a version up. So the names are in one text, and a form has their positions.

use crate::versions::VERSIONS;

/// One row of [`VERSIONS`].
pub(crate) struct Form {
    name: Span,
    pub(crate) version: i32,
    pub(crate) per_thread: bool,
    symbol: Span,
}

/// A part of [`TEXT`].
#[derive(Clone, Copy)]
struct Span {
    start: u16,
    length: u16,
}

static TEXT: [u8; length()] = text();
static FORMS: [Form; VERSIONS.len()] = forms();

/// All forms of this name.
pub(crate) fn of(name: &str) -> impl Iterator<Item = &'static Form> {
    FORMS.iter().filter(move |form| form.name.bytes() == Some(name.as_bytes()))
}

impl Form {
    pub(crate) fn symbol(&self) -> Option<&'static str> {
        core::str::from_utf8(self.symbol.bytes()?).ok()
    }
}

impl Span {
    fn bytes(self) -> Option<&'static [u8]> {
        TEXT.get(usize::from(self.start)..)?.get(..usize::from(self.length))
    }
}

/// Every symbol starts with its name, so the text has only the symbols.
const fn length() -> usize {
    let (mut length, mut row) = (0, 0);
    while row < VERSIONS.len() {
        length += VERSIONS[row].3.len();
        row += 1;
    }
    length
}

const fn text() -> [u8; length()] {
    let mut text = [0; length()];
    let (mut at, mut row) = (0, 0);
    while row < VERSIONS.len() {
        let symbol = VERSIONS[row].3.as_bytes();
        let mut byte = 0;
        while byte < symbol.len() {
            text[at] = symbol[byte];
            (at, byte) = (at + 1, byte + 1);
        }
        row += 1;
    }
    text
}

const fn forms() -> [Form; VERSIONS.len()] {
    const NONE: Span = Span { start: 0, length: 0 };
    const EMPTY: Form = Form { name: NONE, version: 0, per_thread: false, symbol: NONE };
    assert!(length() <= u16::MAX as usize);
    let mut forms = [EMPTY; VERSIONS.len()];
    let (mut at, mut row) = (0, 0);
    while row < VERSIONS.len() {
        let (name, version, per_thread, symbol) = VERSIONS[row];
        assert!(starts_with(symbol.as_bytes(), name.as_bytes()));
        let start = at as u16;
        let name = Span { start, length: name.len() as u16 };
        forms[row] =
            Form { name, version, per_thread, symbol: Span { start, length: symbol.len() as u16 } };
        at += symbol.len();
        row += 1;
    }
    forms
}

const fn starts_with(text: &[u8], start: &[u8]) -> bool {
    let mut byte = 0;
    while byte < start.len() {
        if byte >= text.len() || text[byte] != start[byte] {
            return false;
        }
        byte += 1;
    }
    true
}
