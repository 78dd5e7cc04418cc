//! What a slice may use: quantities as people write them, and the page that carries the limits.
//!
//! Both sides of hami-py speak through this crate: the Python package parses what people write and
//! makes the page, the preload library reads the same page inside the limited program. One grammar
//! and one layout, so that the two can never disagree about what a limit means.

pub mod page;
pub mod quantity;
pub mod whole_file;

pub use page::{LimitsPage, LimitsView, NO_LIMIT, PageError, Row, same_card};
pub use quantity::{InvalidValue, Source, format_memory, parse_memory, parse_share};
