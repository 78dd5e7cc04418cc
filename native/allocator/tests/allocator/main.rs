//! Tests of the allocator through its public interface: its rules one by one, and whole histories
//! against simple checkers that know nothing of how it works and count from its answers alone.

mod bounds;
mod build;
mod caching;
mod cards;
mod feasible;
mod histories;
mod holds;
mod kubelet;
mod ledger;
mod mig;
mod mig_walk;
mod mixed;
mod names;
mod never;
mod nodes;
mod prng;
mod profiles;
mod quotas;
mod relations;
mod shares;
mod topology;
mod victims;
