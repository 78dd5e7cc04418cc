//! What a slice may use: quantities as people write them, the page that carries the limits, and the
//! page that carries the turns on its cards.
//!
//! Both sides of hami-py speak through this crate: the Python package parses what people write and
//! makes the pages, the preload library reads the same pages inside the limited program. One grammar
//! and one layout, so that the two can never disagree about what a limit means.

pub mod file;
pub mod futex;
pub mod grants;
mod mapped;
pub mod page;
pub mod quantity;
pub mod variables;

pub use file::{FileError, FileKind};
pub use page::{LimitsPage, LimitsView, Mode, NO_LIMIT, Priority, Regime, Row, same_card};
pub use quantity::{InvalidValue, Source, format_memory, parse_memory, parse_share};
pub use variables::{VariableShare, Variables};
