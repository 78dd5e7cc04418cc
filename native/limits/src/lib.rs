//! The limits of a slice: the values that people write, and the two pages that carry them.
//!
//! A slice is what one container, or one `hami run`, may use of the cards. The node side writes its
//! limits, and the preload library reads them inside the limited program. Both use this crate, so
//! they cannot disagree about what a limit means. A slice is a directory with three files:
//!
//! ```text
//! <slice>/limits    what may be used: the limits page    written outside, read-only inside
//! <slice>/account   what is used: crate hami-account     written by the processes of the slice
//! <slice>/grants    who may launch: the grants page      written by the coordinator, read-only inside
//! ```
//!
//! A row is one card of the slice, named by its UUID. Row i of the limits page is row i of the
//! account and of the grants page for the slice's whole life: rows may be appended, never moved or
//! removed.
//!
//! | module | content |
//! |---|---|
//! | [`quantity`] | sizes and shares as text: one grammar for options, arguments and variables |
//! | [`variables`] | HAMi's variables, `CUDA_DEVICE_MEMORY_LIMIT` and others |
//! | [`page`] | the limits page |
//! | [`grants`] | the grants page, and the state with which a process answers a grant |
//! | [`mod@file`], `mapped` | the format of the files; creating, recognising, opening and mapping such files; their one error type |
//! | [`futex`], [`clock`] | waiting for a word of a mapped file; the clock of the times in the files |
//! | [`elf`] | functions and imports of an object that the loader or the kernel has mapped |
//!
//! The layouts stand at the top of [`page`] and [`grants`]. A change needs a new format, because a
//! running container keeps its old library. This crate reads no environment, starts no thread and
//! prints nothing: it is linked into the preload library, which runs inside other programs.

pub mod clock;
pub mod elf;
pub mod file;
pub mod futex;
pub mod grants;
mod mapped;
pub mod page;
pub mod quantity;
pub mod variables;

pub use file::{FORMAT, FileError, FileKind, failed, named};
pub use page::{LimitsPage, LimitsView, Mode, NO_LIMIT, Priority, Regime, Row, same_card};
pub use quantity::{InvalidValue, Source, format_memory, parse_memory, parse_share};
pub use variables::{VariableShare, Variables};
