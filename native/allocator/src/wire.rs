//! What goes in and out as JSON: cards, requests, assignments, quotas.
//!
//! Python describes the same values (`hami_py/model/pods`); these types are the schema. Keys are
//! `snake_case`, an unknown one is an error, an absent one has its default. Memory is in MiB, cores
//! are percent of a card.

mod assignment;
pub(crate) mod check;
mod cluster;
pub(crate) mod parse;
mod request;

pub use assignment::{Assignment, Grant, Instance};
pub use cluster::{Card, Mig, MigProfile, Mode, Node, Placement, Quota};
pub use request::{
    Ask, Candidate, Kind, Memory, Order, Pod, Request, Sharing, Topology, Weights, Wish,
};
