//! Which nodes and pods there are, and which pod has which cards.

pub mod book;
pub mod charge;
pub mod list;
pub mod names;
pub mod node;
pub mod sequence;
pub mod spending;
