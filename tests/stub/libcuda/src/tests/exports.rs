//! The numbers and addresses of the exports.

use std::collections::BTreeSet;
use stub_engine::symbols::CUDA;

#[test]
fn the_table_of_exports_is_the_header() {
    let exported: Vec<_> = crate::table::exports().into_iter().map(|(name, _)| name).collect();
    assert_eq!(exported, CUDA, "same names in the same order: counters depend on it");
    let addresses: BTreeSet<_> = crate::table::exports().into_iter().map(|row| row.1).collect();
    assert_eq!(addresses.len(), CUDA.len(), "a program may compare addresses");
}
