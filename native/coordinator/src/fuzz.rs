//! Every field of a slice's files, set to every number that could be mistaken for an index or a
//! length: nothing panics, and the slice beside it is read and leased as before.
//!
//! The account is full of uses before a field is changed: a process that lives, one that has died, and
//! memory that both share. So the code that follows a number runs.

use crate::slice::Scope;
use crate::slices::Slices;
use crate::sweep::Sweep;
use crate::wait::now;
use hami_account::Requester::{Library, Program};
use hami_account::{Account, CARDS, Member, SLOTS, Snapshot};
use hami_limits::grants::{ComputeState, Grant, GrantsPage, GrantsView, Holder, Kind, Report};
use hami_limits::{LimitsPage, LimitsView, Mode, Row};
use hami_share::lease::{Leases, View};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const CARD: &str = "GPU-11111111-2222-3333-4444-555555555555";
const MIB: u64 = 1 << 20;
/// The highest bit of a key says that the memory has handles.
const OF_HANDLES: u64 = 1 << 63;
const LIMIT: u64 = 64 * MIB;

/// The numbers: the least, the largest, and each bound with the numbers around it.
fn numbers() -> Vec<u64> {
    let bounds = [1, CARDS as u64, SLOTS as u64, 4096, 1 << 16, 1 << 31, 1 << 32, 1 << 63];
    let around = bounds.into_iter().flat_map(|bound| [bound - 1, bound, bound + 1]);
    let mut numbers: Vec<u64> = around.chain([u64::MAX - 1, u64::MAX]).collect();
    numbers.dedup();
    numbers
}

/// Offset and width of each field: the first and the last entry of a list stand for it.
fn fields(file: &str) -> Vec<(u64, u64)> {
    let words = |ranges: &[(u64, u64, u64)]| {
        let each = |(first, count, width): &(u64, u64, u64)| {
            let (first, width) = (*first, *width);
            (0..*count).map(move |index| (first + index * width, width)).collect::<Vec<_>>()
        };
        ranges.iter().flat_map(each).collect()
    };
    // As the crates' documentation lists them.
    let (record, last_record) = (36_864, 36_864 + 255 * 256);
    let (compute, next_compute) = (102_400, 102_400 + 64);
    let (charges, keys, entries) = (364_544, 364_544 + 32_768, 364_544 + 65_536);
    match file {
        "account" => words(&[
            (64, 1, 4),
            (128, 1, 4),
            (192, 2, 8),
            (256, 17, 8),
            (448, 1, 4),
            (512, 3, 8),
            (896, 2, 8),
            (1024, 2, 4),
            (1032, 2, 8),
            (1216, 2, 8),
            (4096, 2, 8),
            (record, 2, 4),
            (record + 8, 3, 8),
            (record + 32, 2, 4),
            (record + 40, 1, 8),
            (record + 48, 1, 4),
            (record + 64, 2, 8),
            (record + 256, 2, 4),
            (record + 256 + 8, 3, 8),
            (last_record, 1, 4),
            (compute, 8, 8),
            (next_compute, 8, 8),
            (charges, 2, 8),
            (keys, 2, 8),
            (entries, 4, 4),
            (entries + 16, 4, 8),
            (entries + 48, 2, 4),
        ]),
        "grants" => words(&[(32, 1, 8), (40, 1, 4), (48, 1, 8), (64, 5, 8), (1088, 2, 8)]),
        "limits" => words(&[(0, 52, 4), (2160, 36, 4)]),
        _ => unreachable!(),
    }
}

/// A directory that is removed when the test ends, however it does.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A slice whose files are in use by this process.
struct Used {
    directory: PathBuf,
    account: &'static Account,
    member: Member<'static>,
}

impl Used {
    fn new(slices: &Path, name: &str) -> Self {
        let directory = slices.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let row =
            Row { share: Some(50), mode: Mode::Hard, memory_limit: Some(LIMIT), ..Row::new(CARD) };
        drop(LimitsPage::create(&directory.join("limits"), None, &[row]).unwrap());
        Account::create(&directory.join("account")).unwrap();
        drop(GrantsPage::create(&directory.join("grants")).unwrap());
        let account = Account::attach(&directory.join("account")).unwrap();
        let account: &'static Account = Box::leak(Box::new(account));
        let member = account.join().unwrap();
        let dead = account.join().unwrap();
        for (process, key) in [(&member, OF_HANDLES + 7), (&dead, OF_HANDLES + 9)] {
            process.charge(0, 4 * MIB, LIMIT, Program).unwrap();
            assert!(process.share(key, 0, MIB, None));
        }
        assert!(dead.import(OF_HANDLES + 7) && member.import(OF_HANDLES + 9));
        drop(dead);
        let used = Self { directory, account, member };
        used.answer();
        used
    }

    /// The living process answers its grant, and wants to launch.
    fn answer(&self) -> Grant {
        let grant = GrantsView::open(&self.directory.join("grants")).unwrap().grant(0);
        let (state, number) = (ComputeState::Waiting, grant.number);
        let report = Report { grant: number, state, needs_ns: 1000, ..Report::default() };
        self.member.compute(0).unwrap().set_report(report);
        grant
    }

    /// All that a process of the slice, or a reader of it, does.
    fn use_it(&self) {
        let _ = self.account.living(0).count();
        let _ = (self.account.in_use(0), self.account.used(0), self.account.unpaid_debt(0, now()));
        if self.member.charge(0, MIB, LIMIT, Library).is_ok() {
            self.member.uncharge(0, MIB);
        }
        let _ = self.member.admits(0, LIMIT, LIMIT, Library);
        self.member.reap_dead();
        if self.member.share(OF_HANDLES + 11, 0, 512, None) {
            self.member.close_shared(OF_HANDLES + 11);
        }
        let _ = Snapshot::read(&self.directory.join("account"));
        if let Ok(page) = LimitsView::open(&self.directory.join("limits")) {
            for row in 0..=page.rows().len() {
                let _ = (page.memory_limit(row), page.regime(row), page.row_of(CARD));
            }
        }
        if let Ok(page) = GrantsView::open(&self.directory.join("grants")) {
            for row in [0, CARDS - 1, CARDS] {
                let _ = (page.grant(row), page.departed(row), page.swept_at());
            }
        }
    }
}

/// The coordinator's work, a step after the other.
struct Coordinator {
    slices: Slices,
    leases: Leases,
    view: View,
    at: u64,
}

impl Coordinator {
    fn new(runtime: &Path) -> Self {
        let mut slices = Slices::new(runtime).unwrap();
        slices.scan();
        Self { slices, leases: Leases::new(), view: View::default(), at: now() }
    }

    fn step(&mut self) {
        self.at += 50_000_000;
        self.slices.pulse(self.at);
        self.slices.probe(Scope::All);
        let text = format!(
            r#"{{"version": 1, "started_at": {}, "processes": [{{"pid": {pid},
            "pid_in_namespace": {pid}, "namespace": null, "start_time": 1, "running": true,
            "memory": {{"{CARD}": 1}}}}]}}"#,
            now(),
            pid = std::process::id()
        );
        let sweep = Sweep::parse(text.as_bytes(), now(), None).unwrap();
        self.slices.publish_sweep(&sweep, self.at);
        self.slices.reset_wakes();
        self.slices.read(&mut self.view);
        let decision = self.leases.step(self.at, &self.view);
        self.slices.publish(&decision, self.at);
    }

    /// Whether the slice beside gets the card within a few leases. Processes answer each grant.
    fn leases_to(&mut self, beside: &Used, changed: &Used) -> bool {
        (0..50).any(|_| {
            self.step();
            changed.answer();
            let grant = beside.answer();
            grant.kind != Kind::Own && grant.holder != Holder::None
        })
    }
}

fn write(file: &File, (at, width): (u64, u64), number: u64) {
    file.write_all_at(&number.to_ne_bytes()[..width as usize], at).unwrap();
}

/// Sets each field of one file to each number, each time in fresh files. Several threads do, because
/// a false number may make a request wait for a moment.
fn set_each_field(name: &str) {
    const THREADS: usize = 8;
    let fields = fields(name);
    std::thread::scope(|scope| {
        for (part, fields) in fields.chunks(fields.len().div_ceil(THREADS)).enumerate() {
            scope.spawn(move || set_fields(name, part, fields));
        }
    });
}

fn set_fields(name: &str, part: usize, fields: &[(u64, u64)]) {
    let runtime = format!("hami-fuzz-{name}-{part}-{}", std::process::id());
    let runtime = Scratch(Path::new("/dev/shm").join(runtime));
    let runtime = runtime.0.as_path();
    let slices = runtime.join("slices");
    let (changed, beside) = (Used::new(&slices, "changed"), Used::new(&slices, "beside"));
    let path = changed.directory.join(name);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let held = beside.account.used(0);
    let mut coordinator = Coordinator::new(runtime);
    for field in fields.iter().copied() {
        for number in numbers() {
            file.write_all_at(&whole, 0).unwrap();
            write(&file, field, number);
            changed.use_it();
            coordinator.step();
            changed.use_it();
            assert_eq!(coordinator.slices.damaged_count(), 0, "{name}: {field:?} = {number:#x}");
            assert_eq!(beside.account.used(0), held, "{name}: {field:?} = {number:#x}");
        }
        file.write_all_at(&whole, 0).unwrap();
        assert!(coordinator.leases_to(&beside, &changed), "{name}: {field:?}");
    }
}

#[test]
fn no_number_in_an_account_harms_another_slice() {
    set_each_field("account");
}

#[test]
fn no_number_in_a_grants_page_harms_another_slice() {
    set_each_field("grants");
}

#[test]
fn no_number_in_a_limits_page_harms_another_slice() {
    set_each_field("limits");
}
