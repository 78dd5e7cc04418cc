//! The JSON that goes in and out: nodes and cards, requests, assignments, quotas.
//!
//! These types are the schema; `hami_py/model/pods/wire.py` mirrors them. Keys are `snake_case`. An
//! unknown key is an error, and an absent key has its default. Memory is in MiB; cores are percent
//! of a card. `parse` reads JSON and `check` rejects values that no cluster can mean.

mod assignment;
pub(crate) mod check;
mod cluster;
pub(crate) mod parse;
mod request;

pub use assignment::{Assignment, CardAllocation, Instance};
pub use cluster::{Card, Level, Mig, MigProfile, Mode, Node, Placement, Quota};
pub use request::{
    Candidate, CardRequest, ContainerRequest, Kind, Memory, Order, Pod, PodRequest, Sharing,
    Topology, Weights,
};
