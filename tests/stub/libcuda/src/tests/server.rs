//! Several processes on one server.

use super::arrays::{shape, try_create};
use super::{allocate, alone, fails, free_bytes, kernel, launch, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;
use stub_engine::time::Slicing;
use stub_gpu::arguments::Options;
use stub_gpu::faults::Fault;
use stub_gpu::node::Node;
use stub_gpu::serve;
use stub_gpu::testing::is_alone;

/// A server in this process.
pub struct Server {
    pub node: Arc<Node>,
    options: Options,
}

impl Server {
    fn start(name: &str) -> Self {
        let file = format!("stub-libcuda-{name}-{}", std::process::id());
        Self::start_at(std::env::temp_dir().join(file))
    }

    pub fn start_at(socket: PathBuf) -> Self {
        let options = Options {
            control: socket.with_extension("control"),
            socket,
            cards: "t4,a100".into(),
            free_delay: Duration::ZERO,
            with_parent: false,
            slicing: Slicing::default(),
            has_virtual_clock: false,
            root: None,
            memory_limits: None,
        };
        Self { node: serve::start(&options).expect("server"), options }
    }

    fn socket(&self) -> &str {
        self.options.socket.to_str().expect("a plain path")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for socket in [&self.options.socket, &self.options.control] {
            let _ = std::fs::remove_file(socket);
        }
    }
}

#[test]
fn a_process_is_recorded_in_its_group_with_its_calls() {
    // The chosen process finds the server that its parent has started.
    let server = if is_alone() { None } else { Some(Server::start("group")) };
    let socket = server.as_ref().map_or("", Server::socket);
    alone(&[("STUB_GPU_SOCKET", socket), ("STUB_GPU_GROUP", "slice")], || {
        let mut version = 0;
        ok!(cuDriverGetVersion(&raw mut version));
        start();
        let before = free_bytes();
        let pointer = allocate(1 << 20);
        assert_eq!(free_bytes(), before - (1 << 20));
        ok!(cuMemFree_v2(pointer));
        allocate(12345);
        launch(kernel(c"k"), null_mut());
    });
    let Some(server) = server else { return };
    // The process has ended; its row stays.
    let report = server.node.report();
    let rows = report["processes"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "reading the version attaches no process: {report}");
    assert_eq!((&rows[0]["group"], &rows[0]["library"]), (&"slice".into(), &"cuda".into()));
    for (symbol, count) in
        [("cuDriverGetVersion", 1), ("cuInit", 1), ("cuMemAlloc_v2", 2), ("cuLaunchKernel", 1)]
    {
        assert_eq!(rows[0]["calls"][symbol], count, "{symbol}");
    }
    let held = &rows[0]["cards"][0];
    assert_eq!((&held["requested"]["peak"], &held["kernels"]), (&(1 << 20).into(), &1.into()));
    assert_eq!(held["context"]["peak"], 164 << 20);
    assert_eq!(report["cards"][1]["context"]["peak"], 0);
}

#[test]
fn without_the_server_there_is_no_device() {
    alone(&[("STUB_GPU_SOCKET", "/no/such/socket")], || {
        fails!(CUDA_ERROR_NO_DEVICE, cuInit(0));
    });
}

#[test]
fn a_planned_fault_counts_arrays() {
    let path = std::env::temp_dir().join(format!("stub-libcuda-arrays-{}", std::process::id()));
    alone(&[("STUB_GPU_SOCKET", path.to_str().expect("a plain path"))], || {
        let socket = std::env::var_os("STUB_GPU_SOCKET").expect("socket");
        let server = Server::start_at(socket.into());
        start();
        server.node.inject(Fault::OutOfMemory { card: 0, nth: 2 }).expect("a fault");
        let (plane, mut levels) = (shape([64, 64, 0], 1, 0), null_mut());
        assert_eq!(try_create(&plane).0, CUDA_SUCCESS);
        assert_eq!(try_create(&plane).0, CUDA_ERROR_OUT_OF_MEMORY);
        ok!(cuMipmappedArrayCreate(&raw mut levels, &raw const plane, 2));
        let card = &server.node.report()["cards"][0];
        assert_eq!((&card["requested"]["now"], &card["allocations"]), (&9216.into(), &2.into()));
        assert_eq!(card["refused"], 1);
    });
}

#[test]
fn a_lost_card_does_nothing_until_it_is_back() {
    let path = std::env::temp_dir().join(format!("stub-libcuda-lost-{}", std::process::id()));
    alone(&[("STUB_GPU_SOCKET", path.to_str().expect("a plain path"))], || {
        let socket = std::env::var_os("STUB_GPU_SOCKET").expect("socket");
        let server = Server::start_at(socket.into());
        let lose = |card, is_lost| {
            server.node.inject(Fault::Lost { card, is_lost }).expect("a fault");
        };
        let context = start();
        let (mut pointer, mut other) = (allocate(8), null_mut());
        lose(0, true);
        fails!(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemAlloc_v2(&raw mut pointer, 8));
        fails!(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemGetInfo_v2(null_mut(), null_mut()));
        fails!(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxSynchronize());
        fails!(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxCreate_v2(&raw mut other, 0, 0));
        fails!(CUDA_ERROR_DEVICE_UNAVAILABLE, cuDevicePrimaryCtxRetain(&raw mut other, 0));
        ok!(cuCtxCreate_v2(&raw mut other, 0, 1));
        allocate(8);
        ok!(cuCtxSetCurrent(context));
        lose(0, false);
        ok!(cuMemFree_v2(pointer));
        ok!(cuCtxSynchronize());
        assert_eq!(server.node.report()["cards"][0]["requested"]["now"], 0);
    });
}
