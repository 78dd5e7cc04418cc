//! Tests of the turns on a simulated machine: do the shares hold?

mod changes;
mod gangs;
mod newcomers;
mod shares;
mod sim;
