//! Measures a charge: `cargo run --release -p hami-account --example charge_cost`.
//!
//! It prints the best and the median of 31 runs, in nanoseconds per charge and uncharge together,
//! with 1, 64 and 256 registered processes, then for a charge that is refused because the limit is
//! reached.

use hami_account::{Account, SLOTS};
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 31;
const CALLS: u32 = 100_000;
const LIMIT: u64 = 4 << 30;

fn main() {
    let path = std::env::temp_dir().join(format!("charge-cost-{}", std::process::id()));
    if let Err(error) = measure(&path) {
        eprintln!("{error}");
    }
    let _ = std::fs::remove_file(&path);
}

fn measure(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    Account::create(path)?;
    let account = Account::attach(path)?;
    let mut members = vec![account.join()?];
    for registered in [1, 64, SLOTS] {
        while members.len() < registered {
            members.push(account.join()?);
        }
        let member = &members[0];
        print(&format!("charge + uncharge, {registered} registered"), || {
            let granted = member.charge(0, black_box(2 << 20), LIMIT);
            member.uncharge(0, 2 << 20);
            black_box(granted)
        });
        member.charge(0, LIMIT, LIMIT)?;
        print(&format!("refused charge, {registered} registered"), || {
            black_box(member.charge(0, black_box(2 << 20), LIMIT))
        });
        member.uncharge(0, LIMIT);
    }
    print("in_use", || black_box(account.in_use(0)));
    Ok(())
}

fn print<T>(name: &str, mut call: impl FnMut() -> T) {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| _ = call());
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name}: best {:.1} ns, median {:.1} ns", runs[0], runs[RUNS / 2]);
}
