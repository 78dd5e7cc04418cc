//! NVML from the outside: through its exports, beside a client that holds memory.

mod events;
mod processes;

use crate::device::version_of;
use crate::table::*;
use core::ffi::{CStr, c_char};
use driver_sys::nvml::*;
use std::ffi::CString;
use std::mem::zeroed;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;
use stub_engine::client::Client;
use stub_engine::ledger::Kind;
use stub_engine::profile::{self, Card};
use stub_engine::symbols::Library;
use stub_engine::time::Slicing;
use stub_engine::{Engine, Watch};
use stub_gpu::arguments::Options;
use stub_gpu::node::Node;
use stub_gpu::serve;
use stub_gpu::testing::alone;

const CARDS: &str = "t4,a100,a100-mig-3g";
const MIB: u64 = 1 << 20;

/// Calls an NVML function that must return this code.
macro_rules! returns {
    ($code:ident, $call:expr) => {
        // SAFETY: the test's arguments are what the function's documentation asks for.
        assert_eq!(unsafe { $call }, $code, "{}", stringify!($call))
    };
}

/// Calls an NVML function that must succeed.
macro_rules! ok {
    ($call:expr) => {
        crate::tests::returns!(NVML_SUCCESS, $call)
    };
}

pub(crate) use {ok, returns};

fn socket(name: &str) -> String {
    let file = format!("stub-nvml-{name}-{}", std::process::id());
    std::env::temp_dir().join(file).to_string_lossy().into_owned()
}

/// Starts a server in this process, at `STUB_GPU_SOCKET`.
struct Here(Options, Arc<Node>);

impl Here {
    fn start() -> Self {
        Self::with_cards(CARDS)
    }

    fn with_cards(cards: &str) -> Self {
        let socket = PathBuf::from(std::env::var_os("STUB_GPU_SOCKET").expect("socket"));
        let options = Options {
            control: socket.with_extension("control"),
            socket,
            cards: cards.into(),
            free_delay: Duration::ZERO,
            with_parent: false,
            slicing: Slicing::default(),
            has_virtual_clock: false,
            root: None,
            memory_limits: None,
        };
        let node = serve::start(&options).expect("server");
        ok!(nvmlInit_v2());
        Self(options, node)
    }

    fn client(&self) -> Client {
        Client::connect(&self.0.socket, Library::Cuda, "").expect("client")
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        for socket in [&self.0.socket, &self.0.control] {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn cards() -> Vec<Card> {
    profile::cards(CARDS).expect("cards")
}

fn device(index: u32) -> nvmlDevice_t {
    let mut device = null_mut();
    ok!(nvmlDeviceGetHandleByIndex_v2(index, &raw mut device));
    device
}

macro_rules! calls {
    ($($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty;)*) => {
        // SAFETY: every parameter is a number, a pointer or a structure of those: zero is valid.
        &[$((stringify!($name), || unsafe { code($name($(zeroed::<$type>()),*)) })),*]
    };
}

/// A code, or NULL for text.
trait Code {
    fn code(self) -> Option<nvmlReturn_t>;
}

impl Code for nvmlReturn_t {
    fn code(self) -> Option<nvmlReturn_t> {
        Some(self)
    }
}

impl Code for *const c_char {
    fn code(self) -> Option<nvmlReturn_t> {
        None
    }
}

fn code(result: impl Code) -> Option<nvmlReturn_t> {
    result.code()
}

type Call = (&'static str, fn() -> Option<nvmlReturn_t>);

const CALLS: &[Call] = driver_sys::each_nvml_fn!(calls);

#[test]
fn every_zero_is_answered_before_and_after_init() {
    alone(&[], || {
        let calls = CALLS.iter().filter(|(name, _)| !name.starts_with("nvmlInit"));
        for (name, call) in calls.clone() {
            assert!(matches!(call(), None | Some(NVML_ERROR_UNINITIALIZED)), "{name}");
        }
        ok!(nvmlInit());
        for (name, call) in calls.filter(|(name, _)| *name != "nvmlShutdown") {
            let known = [NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED];
            let result = call();
            let is_refused = result.is_none_or(|result| known.contains(&result));
            assert!(is_refused, "{name} returns {result:?}");
        }
    });
}

#[test]
fn init_is_counted() {
    alone(&[], || {
        let mut count = 0;
        ok!(nvmlInit_v2());
        ok!(nvmlInitWithFlags(0));
        ok!(nvmlShutdown());
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 1);
        ok!(nvmlShutdown());
        returns!(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&raw mut count));
        returns!(NVML_ERROR_UNINITIALIZED, nvmlShutdown());
        // SAFETY: the answer is a constant string.
        let text = unsafe { CStr::from_ptr(nvmlErrorString(NVML_ERROR_UNINITIALIZED)) };
        assert_eq!(text, c"Uninitialized");
    });
}

#[test]
fn memory_and_processes_are_those_of_the_engine() {
    let path = socket("recorded");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let client = server.client();
        client.charge(1, Kind::Context, 400 * MIB).expect("context");
        client.charge(1, Kind::Requested, 12345).expect("bytes");
        let used = 400 * MIB + 12345;
        let (total, reserved) = (40960 * MIB, 571 * MIB);
        let (mut old, mut new): (nvmlMemory_t, nvmlMemory_v2_t) =
                // SAFETY: structures of numbers.
                unsafe { (zeroed(), zeroed()) };
        ok!(nvmlDeviceGetMemoryInfo(device(1), &raw mut old));
        assert_eq!((old.total, old.used), (total, used + reserved));
        assert_eq!(old.free, total - used - reserved);
        returns!(
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvmlDeviceGetMemoryInfo_v2(device(1), &raw mut new)
        );
        new.version = version_of::<nvmlMemory_v2_t>(2);
        ok!(nvmlDeviceGetMemoryInfo_v2(device(1), &raw mut new));
        assert_eq!((new.total, new.reserved, new.used), (total, reserved, used));
        let usable = client.cards()[1].profile.usable();
        assert_eq!(new.free, usable - client.used(1).expect("usage"));

        let (mut count, mut rows) = (
            0,
            [nvmlProcessInfo_v2_t {
                pid: 0,
                usedGpuMemory: 0,
                gpuInstanceId: 0,
                computeInstanceId: 0,
            }; 2],
        );
        let place = &raw mut count;
        returns!(
            NVML_ERROR_INSUFFICIENT_SIZE,
            nvmlDeviceGetComputeRunningProcesses_v3(device(1), place, null_mut())
        );
        assert_eq!(count, 1);
        count = 2;
        let list = rows.as_mut_ptr();
        ok!(nvmlDeviceGetComputeRunningProcesses_v3(device(1), &raw mut count, list));
        assert_eq!((count, rows[0].pid), (1, std::process::id()));
        assert_eq!((rows[0].usedGpuMemory, rows[1].pid), (used, 0));
        count = 2;
        ok!(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &raw mut count, list));
        assert_eq!(count, 0, "no process is on the other card");
    });
}

/// A place in memory with a pattern behind it.
#[repr(C)]
struct Guarded {
    room: [u8; 256],
}

impl Guarded {
    fn new() -> Self {
        Self { room: [0xa5; 256] }
    }

    /// Bytes from the first to the last that was written.
    fn written(&self) -> usize {
        self.room.iter().rposition(|byte| *byte != 0xa5).map_or(0, |last| last + 1)
    }
}

#[test]
fn old_names_write_no_more_than_their_old_structures() {
    alone(&[], || {
        ok!(nvmlInit_v2());
        let mut guarded = Guarded::new();
        let place = guarded.room.as_mut_ptr().cast();
        ok!(nvmlDeviceGetPciInfo(device(0), place));
        assert_eq!(guarded.written(), 32);
        ok!(nvmlDeviceGetPciInfo_v2(device(0), place));
        assert_eq!(guarded.written(), 36);
        ok!(nvmlDeviceGetPciInfo_v3(device(0), place));
        assert_eq!(guarded.written(), 68);
        assert_eq!(guarded.room[36..53], *b"00000000:07:00.0\0");
    });
}

#[test]
fn rows_of_old_process_lists_are_small() {
    let path = socket("rows");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let clients = [server.client(), server.client()];
        for client in &clients {
            client.charge(0, Kind::Context, MIB).expect("context");
        }
        let (mut guarded, mut count) = (Guarded::new(), 2);
        let place = guarded.room.as_mut_ptr().cast();
        let list = place;
        ok!(nvmlDeviceGetComputeRunningProcesses(device(0), &raw mut count, list));
        assert_eq!((count, guarded.written()), (2, 32));
        ok!(nvmlDeviceGetComputeRunningProcesses_v2(device(0), &raw mut count, place.cast()));
        assert_eq!((count, guarded.written()), (2, 48));
    });
}

#[test]
fn devices_are_found_by_every_name() {
    alone(&[("STUB_GPU_PROFILE", CARDS)], || {
        ok!(nvmlInit_v2());
        for card in cards() {
            let here = device(card.index as u32);
            let mut found = null_mut();
            let text = |text: String| CString::new(text).expect("no NUL");
            let uuid = text(card.uuid());
            ok!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found));
            assert_eq!(found, here);
            for spelling in [card.pci_bus_id(), format!("0000{}", card.pci_bus_id())] {
                let bus = text(spelling);
                found = null_mut();
                ok!(nvmlDeviceGetHandleByPciBusId_v2(bus.as_ptr(), &raw mut found));
                assert_eq!(found, here);
            }
            let mut binary = nvmlUUID_t {
                version: version_of::<nvmlUUID_t>(1),
                r#type: NVML_UUID_TYPE_BINARY,
                value: nvmlUUIDValue_t { bytes: card.uuid_bytes },
            };
            found = null_mut();
            ok!(nvmlDeviceGetHandleByUUIDV(&raw const binary, &raw mut found));
            assert_eq!(found, here);
            binary.version = 1;
            returns!(
                NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                nvmlDeviceGetHandleByUUIDV(&raw const binary, &raw mut found)
            );
        }
        let mut found = null_mut();
        let place = &raw mut found;
        returns!(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(3, place));
        returns!(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID(c"GPU-1".as_ptr(), place));
        let mut name = [0; 8];
        returns!(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetName(device(0), name.as_mut_ptr(), 8));
    });
}

#[test]
fn a_process_without_some_device_nodes_has_the_other_cards() {
    let folder = socket("devices");
    let variables = [("STUB_GPU_PROFILE", CARDS), ("STUB_GPU_DEVICES", &folder)];
    alone(&variables, || {
        let folder = PathBuf::from(std::env::var_os("STUB_GPU_DEVICES").expect("folder"));
        std::fs::create_dir(&folder).expect("folder");
        let mut count = 9;
        ok!(nvmlInit_v2());
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 0);
        ok!(nvmlShutdown());
        std::fs::write(folder.join("nvidia2"), "").expect("node");
        ok!(nvmlInit_v2());
        std::fs::remove_dir_all(&folder).expect("removed");
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 1);
        let (mut index, mut minor) = (9, 9);
        ok!(nvmlDeviceGetIndex(device(0), &raw mut index));
        ok!(nvmlDeviceGetMinorNumber(device(0), &raw mut minor));
        assert_eq!((index, minor), (0, 2));
        let text = |text: String| CString::new(text).expect("no NUL");
        let mut found = null_mut();
        let place = &raw mut found;
        returns!(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(1, place));
        for card in &cards()[..2] {
            let (uuid, bus) = (text(card.uuid()), text(card.pci_bus_id()));
            returns!(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), place));
            returns!(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2(bus.as_ptr(), place));
        }
        let uuid = text(cards()[2].uuid());
        ok!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), place));
        assert_eq!(found, device(0));
    });
}

#[test]
fn a_forked_child_watches_through_a_connection_of_its_own() {
    let path = socket("fork");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let here = device(1);
        // SAFETY: the child only calls NVML and ends.
        let (child, status) = unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut memory: nvmlMemory_t = zeroed();
                let result = nvmlDeviceGetMemoryInfo(here, &raw mut memory);
                libc::_exit(i32::from(result != NVML_SUCCESS || memory.total != 40960 * MIB));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            (child, status)
        };
        assert_eq!(status, 0, "the child's own view");
        let report = server.1.report();
        let rows = report["processes"].as_array().expect("rows");
        assert!(rows.iter().any(|row| row["pid"] == child), "{child} never attached: {report}");
        let mut memory: nvmlMemory_t =
                // SAFETY: a structure of numbers.
                unsafe { zeroed() };
        ok!(nvmlDeviceGetMemoryInfo(here, &raw mut memory));
    });
}
