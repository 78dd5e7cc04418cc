//! One process at a time: the account against plain arithmetic, and damaged files.

mod common;

use common::{Child, MIB, Random, Scratch};
use hami_account::Requester::Program;
use hami_account::{Account, CARDS, Departed, Member, Refused, Snapshot, UNIT};
use hami_limits::FileError;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The account as plain arithmetic.
#[derive(Default)]
struct Model {
    held: [[u64; 5]; CARDS],
    peak: [u64; CARDS],
    refusals: [[u64; 5]; CARDS],
    anomalies: u64,
}

impl Model {
    fn charge(&mut self, card: usize, member: usize, bytes: u64, limit: u64) -> bool {
        let rounded = bytes.div_ceil(UNIT) * UNIT;
        let fits = self.held[card].iter().sum::<u64>() + rounded <= limit;
        if fits {
            self.held[card][member] += rounded;
            self.peak[card] = self.held[card].iter().sum::<u64>().max(self.peak[card]);
        } else {
            self.refusals[card][member] += 1;
        }
        fits
    }

    fn uncharge(&mut self, card: usize, member: usize, bytes: u64) {
        let rounded = bytes.div_ceil(UNIT) * UNIT;
        let held = &mut self.held[card][member];
        self.anomalies += u64::from(rounded > *held);
        *held = held.saturating_sub(rounded);
    }
}

#[test]
fn what_was_measured_counts_for_the_peak() {
    let scratch = Scratch::new("measured");
    let account = Account::attach(&scratch.path()).unwrap();
    let member = account.join().unwrap();
    member.charge(0, 3 * MIB, 8 * MIB, Program).unwrap();
    account.set_measured(0, 2 * MIB);
    account.set_measured(0, MIB);
    let snapshot = Snapshot::read(&scratch.path()).unwrap();
    assert_eq!((snapshot.used[0], snapshot.peak[0]), (4 * MIB, 5 * MIB));
}

#[test]
fn the_account_agrees_with_plain_arithmetic() {
    let scratch = Scratch::new("model");
    let account = Account::attach(&scratch.path()).unwrap();
    let members: Vec<Member> = (0..5).map(|_| account.join().unwrap()).collect();
    let mut model = Model::default();
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let card = random.below(CARDS as u64) as usize;
        let member = random.below(5) as usize;
        let bytes = match random.below(4) {
            0 => random.below(3),
            1 => random.below(4) * MIB,
            _ => random.below(4 * MIB),
        };
        let limit = (4 + random.below(4)) * MIB;
        if random.below(5) < 3 {
            let granted = members[member].charge(card, bytes, limit, Program);
            assert_eq!(granted.is_ok(), model.charge(card, member, bytes, limit));
            assert!(matches!(granted, Ok(()) | Err(Refused::OverLimit)));
        } else {
            members[member].uncharge(card, bytes);
            model.uncharge(card, member, bytes);
        }
        assert_eq!(members[member].held(card), model.held[card][member]);
        assert_eq!(account.used(card), model.held[card].iter().sum::<u64>());
    }
    let snapshot = Snapshot::read(&scratch.path()).unwrap();
    assert_eq!(snapshot.anomalies, model.anomalies);
    assert!(model.anomalies > 0);
    assert_eq!(snapshot.peak, model.peak);
    for card in 0..CARDS {
        assert_eq!(snapshot.used[card], model.held[card].iter().sum::<u64>());
        assert_eq!(snapshot.refusals[card], model.refusals[card].iter().sum::<u64>());
        for (member, process) in snapshot.processes.iter().enumerate() {
            assert_eq!(process.memory[card], model.held[card][member]);
            assert_eq!(process.refusals[card], model.refusals[card][member]);
            assert!(process.alive);
            assert_eq!(process.identity.pid, std::process::id());
        }
    }
}

#[test]
fn the_ends_of_the_scale() {
    let scratch = Scratch::new("ends");
    let account = Account::attach(&scratch.path()).unwrap();
    let member = account.join().unwrap();
    let no_limit = u64::MAX;
    let tib = 1 << 40;
    assert_eq!(member.charge(0, u64::MAX, no_limit, Program), Err(Refused::OverLimit));
    assert_eq!(member.charge(0, tib, no_limit, Program), Err(Refused::OverLimit), "1 TiB at once");
    assert_eq!(member.charge(0, tib - UNIT, no_limit, Program), Ok(()));
    assert_eq!(member.charge(0, tib - UNIT, no_limit, Program), Ok(()));
    assert_eq!(member.charge(0, UNIT, no_limit, Program), Ok(()));
    assert_eq!(
        member.charge(0, 1, no_limit, Program),
        Err(Refused::OverLimit),
        "2 TiB per process and card"
    );
    assert_eq!(account.join().unwrap().charge(0, tib - UNIT, no_limit, Program), Ok(()));
    assert_eq!(member.charge(1, 0, 0, Program), Ok(()));
    assert_eq!(member.charge(1, 1, 511, Program), Err(Refused::OverLimit));
    assert_eq!(member.charge(CARDS, 0, no_limit, Program), Err(Refused::OverLimit));
    member.uncharge(CARDS, 1);
    assert_eq!((member.held(CARDS), account.used(CARDS)), (0, 0));
    // A limit below the held bytes refuses new ones and takes none away.
    assert_eq!(member.charge(2, 8 * MIB, 8 * MIB, Program), Ok(()));
    assert_eq!(member.charge(2, 1, 4 * MIB, Program), Err(Refused::OverLimit));
    assert_eq!(member.held(2), 8 * MIB);
}

/// The child probed when it joined, and for 10 ms no process probes again.
fn wait_for_next_probe() {
    std::thread::sleep(Duration::from_millis(11));
}

#[test]
fn refusals_and_anomalies_outlive_their_process() {
    let scratch = Scratch::new("outlive");
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        for _ in 0..3 {
            member.charge(7, 2 * MIB, MIB, Program).unwrap_err();
        }
        member.uncharge(7, 1);
    });
    assert_eq!(child.wait(), 0);
    let account = Account::attach_with(&scratch.path(), |_| Departed::No).unwrap();
    wait_for_next_probe();
    account.reap_dead();
    let snapshot = Snapshot::read(&scratch.path()).unwrap();
    assert!(snapshot.processes.is_empty());
    assert_eq!((snapshot.refusals[7], snapshot.anomalies), (3, 1));
}

#[test]
fn a_process_records_its_identity() {
    let scratch = Scratch::new("identity");
    let account = Account::attach_with(&scratch.path(), |dead| {
        let identity = dead.identity;
        assert!(identity.start_time > 0 && identity.pid_namespace > 0 && dead.joined_at > 0);
        Departed::Yes
    });
    let account = account.unwrap();
    let child = Child::run(|| {
        let member = account.join().unwrap();
        member.charge(0, MIB, MIB, Program).unwrap();
    });
    assert_eq!(child.wait(), 0);
    wait_for_next_probe();
    assert_eq!(account.reap_dead(), MIB);
}

fn assert_damaged(scratch: &Scratch) {
    let attached = Account::attach(&scratch.path()).map(drop);
    let read = Snapshot::read(&scratch.path()).map(drop);
    for result in [attached, read] {
        assert!(matches!(result, Err(FileError::Damaged { .. })), "{result:?}");
    }
}

#[test]
fn another_file_is_no_account() {
    let scratch = Scratch::new("another");
    let good = fs::read(scratch.path()).unwrap();
    for bytes in [&[][..], &good[..good.len() - 1], &[good.as_slice(), &[0]].concat()] {
        fs::write(scratch.path(), bytes).unwrap();
        assert_damaged(&scratch);
    }
    for bit in 0..128 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(scratch.path(), &bytes).unwrap();
        assert_damaged(&scratch);
    }
    let missing = scratch.folder().join("missing");
    for result in [Account::attach(&missing).map(drop), Snapshot::read(&missing).map(drop)] {
        match result {
            Err(FileError::Io { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A hostile process can write anything: each read and each charge must return.
#[test]
fn invalid_content_harms_no_process() {
    let scratch = Scratch::new("nonsense");
    let good = fs::read(scratch.path()).unwrap();
    let mut random = Random::new(2);
    let (mut read, mut rejected) = (0, 0);
    for round in 0..20 {
        let mut bytes = good.clone();
        if round % 2 == 0 {
            bytes[16..].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        } else {
            for _ in 0..20 {
                bytes[16 + random.below(good.len() as u64 - 16) as usize] = random.below(256) as u8;
            }
        }
        fs::write(scratch.path(), &bytes).unwrap();
        match Snapshot::read(&scratch.path()) {
            Ok(_) => read += 1,
            Err(FileError::Damaged { .. }) => rejected += 1,
            Err(other) => panic!("{other}"),
        }
        let account = Account::attach_with(&scratch.path(), |_| Departed::Yes).unwrap();
        account.used(0);
        let member = account.join().expect("a process without a lock is dead");
        let _ = member.charge(0, MIB, 64 * MIB, Program);
        member.uncharge(0, MIB);
    }
    assert!(read > 0 && rejected > 0, "{read} read, {rejected} rejected");
}

#[test]
fn the_driver_s_memory_is_a_part_of_what_a_process_holds() {
    let scratch = Scratch::new("driver");
    let account = Account::attach(&scratch.path()).unwrap();
    let member = account.join().unwrap();
    member.charge(0, MIB, 4 * MIB, Program).unwrap();
    let words = member.compute(0).unwrap();
    // A process can write anything there, but it cannot hold more of the driver than in all.
    for (written, read) in [(MIB / 2, MIB / 2), (u64::MAX, MIB)] {
        words.driver_memory.store(written, Ordering::Relaxed);
        let seen = &Snapshot::read(&scratch.path()).unwrap().processes[0];
        assert_eq!((seen.memory[0], seen.driver_memory[0]), (MIB, read));
    }
}
