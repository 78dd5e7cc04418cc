//! Events and faults of cards, in the order in which a test makes them happen.

use super::{Here, device, ok, returns, socket};
use crate::table::*;
use driver_sys::nvml::*;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use stub_gpu::faults::Fault;
use stub_gpu::testing::alone;

/// `nvmlEventTypeXidCriticalError`
const XID: u64 = 8;

fn event_set() -> nvmlEventSet_t {
    let mut set = null_mut();
    ok!(nvmlEventSetCreate(&raw mut set));
    set
}

/// The card and the number of the next error in a set.
fn next(set: nvmlEventSet_t) -> (nvmlDevice_t, u64) {
    let mut data: nvmlEventData_t =
        // SAFETY: a structure of numbers and a pointer.
        unsafe { zeroed() };
    ok!(nvmlEventSetWait_v2(set, &raw mut data, 10_000));
    assert_eq!((data.eventType, data.gpuInstanceId), (XID, u32::MAX));
    (data.device, data.eventData)
}

fn has_no_event(set: nvmlEventSet_t, timeout_ms: u32) {
    let mut data: nvmlEventData_t =
        // SAFETY: as above.
        unsafe { zeroed() };
    returns!(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &raw mut data, timeout_ms));
}

impl Here {
    fn inject(&self, fault: Fault) {
        self.1.inject(fault).expect("a fault");
    }
}

#[test]
fn a_set_has_the_errors_of_its_cards_since_their_registration() {
    let path = socket("events");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let (set, late) = (event_set(), event_set());
        ok!(nvmlDeviceRegisterEvents(device(1), XID, set));
        ok!(nvmlDeviceRegisterEvents(device(0), XID, late));
        for (card, xid) in [(0, 13), (1, 79), (1, 48)] {
            server.inject(Fault::Xid { card, xid });
        }
        ok!(nvmlDeviceRegisterEvents(device(1), XID, late));
        ok!(nvmlDeviceRegisterEvents(device(1), XID, set));
        assert_eq!([next(set), next(set)], [(device(1), 79), (device(1), 48)]);
        has_no_event(set, 0);
        assert_eq!(next(late), (device(0), 13));
        has_no_event(late, 0);
        ok!(nvmlEventSetFree(set));
        returns!(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(set));
        let mut old = [9u64; 4];
        server.inject(Fault::Xid { card: 1, xid: 94 });
        ok!(nvmlEventSetWait(late, old.as_mut_ptr().cast(), 10_000));
        assert_eq!(old, [device(1) as u64, XID, 94, 9], "the old structure has no instances");
        ok!(nvmlShutdown());
        ok!(nvmlInit_v2());
        returns!(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(late));
    });
}

#[test]
fn a_wait_ends_with_the_event() {
    let path = socket("wait");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let set = event_set();
        ok!(nvmlDeviceRegisterEvents(device(0), XID, set));
        let started = Instant::now();
        has_no_event(set, 30);
        assert!(started.elapsed() >= Duration::from_millis(30));
        let node = std::sync::Arc::clone(&server.1);
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            node.inject(Fault::Xid { card: 0, xid: 79 }).expect("a fault");
        });
        assert_eq!(next(set), (device(0), 79));
        assert!(started.elapsed() >= Duration::from_millis(80));
        other.join().expect("the other thread");
    });
}

#[test]
fn what_a_card_cannot_report_is_not_supported() {
    alone(&[("STUB_GPU_PROFILE", super::CARDS)], || {
        ok!(nvmlInit_v2());
        let (set, mut types) = (event_set(), 0);
        let (full, mig) = (device(1), device(2));
        ok!(nvmlDeviceGetSupportedEventTypes(full, &raw mut types));
        assert_eq!(types, XID);
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(full, XID | 1, set));
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetSupportedEventTypes(mig, &raw mut types));
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(mig, XID, set));
        returns!(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceRegisterEvents(full, XID, null_mut()));
        ok!(nvmlDeviceRegisterEvents(full, XID, set));
        has_no_event(set, 1);
        let mut rows = [9; 4];
        let [correctable, uncorrectable, pending, failed] =
            rows.each_mut().map(|row| &raw mut *row);
        let ask = |device| {
            // SAFETY: all places are valid.
            unsafe {
                nvmlDeviceGetRemappedRows(device, correctable, uncorrectable, pending, failed)
            }
        };
        assert_eq!(ask(device(0)), NVML_ERROR_NOT_SUPPORTED, "a t4 retires pages");
        assert_eq!(ask(full), NVML_SUCCESS);
        assert_eq!(rows, [0; 4]);
        let mut node = 0;
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetNumaNodeId(full, &raw mut node));
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetNvLinkState(full, 0, &raw mut node));
        let level = &raw mut node;
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetTopologyCommonAncestor(full, full, level));
        returns!(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetRetiredPagesPendingStatus(full, level));
    });
}

#[test]
fn a_lost_card_answers_again_when_it_is_back() {
    let path = socket("lost");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let (lost, other, set) = (device(1), device(0), event_set());
        ok!(nvmlDeviceRegisterEvents(lost, XID, set));
        server.inject(Fault::Xid { card: 1, xid: 79 });
        server.inject(Fault::Lost { card: 1, is_lost: true });
        let mut memory: nvmlMemory_t =
            // SAFETY: a structure of numbers.
            unsafe { zeroed() };
        let (mut found, mut count) = (null_mut(), 0);
        ok!(nvmlDeviceGetMemoryInfo(other, &raw mut memory));
        returns!(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetMemoryInfo(lost, &raw mut memory));
        returns!(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetHandleByIndex_v2(1, &raw mut found));
        let uuid = std::ffi::CString::new(super::cards()[1].uuid()).expect("no NUL");
        returns!(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found));
        ok!(nvmlDeviceGetCount_v2(&raw mut count));
        assert_eq!(count, 3);
        assert_eq!(next(set), (lost, 79));
        let mut data = [0u64; 4];
        returns!(NVML_ERROR_GPU_IS_LOST, nvmlEventSetWait_v2(set, data.as_mut_ptr().cast(), 1));
        ok!(nvmlShutdown());
        ok!(nvmlInit_v2());
        returns!(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetMemoryInfo(lost, &raw mut memory));
        server.inject(Fault::Lost { card: 1, is_lost: false });
        ok!(nvmlDeviceGetMemoryInfo(lost, &raw mut memory));
    });
}

#[test]
fn a_failed_remapping_is_reported_for_its_card() {
    let path = socket("rows");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let failed_on = |card| {
            let (mut row, mut failed) = (0, 9);
            let (any, failed_at) = (&raw mut row, &raw mut failed);
            ok!(nvmlDeviceGetRemappedRows(device(card), any, any, any, failed_at));
            failed
        };
        server.inject(Fault::RemapFailed { card: 1, has_failed: true });
        assert_eq!([failed_on(1), failed_on(2)], [1, 0]);
        server.inject(Fault::RemapFailed { card: 1, has_failed: false });
        assert_eq!(failed_on(1), 0);
    });
}

#[test]
fn a_hanging_call_ends_when_the_test_ends_the_order() {
    let path = socket("hang");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let server = Here::start();
        let order = |us| Fault::Slow { symbol: "nvmlDeviceGetCount_v2".into(), us };
        server.inject(order(600_000_000));
        let hanging = std::thread::spawn(|| {
            let mut count = 0;
            ok!(nvmlDeviceGetCount_v2(&raw mut count));
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!hanging.is_finished());
        server.inject(order(0));
        hanging.join().expect("the call");
    });
}
