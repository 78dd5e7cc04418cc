//! The allocator as its users see it: rules one by one, and whole histories against simple checkers that
//! know nothing of how it works and count from its answers alone.

mod bounds;
mod build;
mod feasible;
mod histories;
mod kubelet;
mod mig;
mod prng;
mod remembered;
mod rules;
mod topology;
mod unseen;
mod victims;
