//! Memory of one process in another: IPC and pools, with a server that both use.

use super::server::Server;
use super::virtual_memory::first_byte;
use super::{allocate, alone, invalid, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use serde_json::Value;
use std::ffi::c_char;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::ptr::{null_mut, without_provenance_mut};

const POSIX: u32 = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The other process. Both sides exchange words of 64 bytes.
struct Other {
    stream: UnixStream,
    pid: i32,
}

impl Other {
    fn tell(&mut self, text: &[u8]) {
        let mut word = [0; 64];
        word[..text.len()].copy_from_slice(text);
        self.stream.write_all(&word).expect("tell");
    }

    fn hear(&mut self) -> [u8; 64] {
        let mut word = [0; 64];
        self.stream.read_exact(&mut word).expect("the other process has ended");
        word
    }

    fn hear_number(&mut self) -> u64 {
        String::from_utf8_lossy(&self.hear()).trim_end_matches('\0').parse().expect("number")
    }

    fn kill(&self) {
        // SAFETY: our own child, which is not yet waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, null_mut(), 0);
        }
    }
}

/// Runs two processes on one server, which is in the first.
fn two(name: &str, first: impl Fn(&mut Other, &Server), second: impl Fn(&mut Other)) {
    let path = PathBuf::from(std::env::var_os("STUB_GPU_SOCKET").expect(name));
    let server = Server::start_at(path);
    let (ours, theirs) = UnixStream::pair().expect("pair");
    let parent = std::process::id() as i32;
    // SAFETY: the child only runs `second`, in a driver of its own, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(ours);
        let mut other = Other { stream: theirs, pid: parent };
        let body = std::panic::AssertUnwindSafe(|| second(&mut other));
        let failed = std::panic::catch_unwind(body).is_err();
        // SAFETY: the child ends without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    drop(theirs);
    let mut other = Other { stream: ours, pid };
    first(&mut other, &server);
}

/// The environment of a test with a server.
fn socket(name: &str) -> String {
    let file = format!("stub-libcuda-{name}-{}", std::process::id());
    std::env::temp_dir().join(file).to_string_lossy().into_owned()
}

/// Requested bytes of card 0: of the whole card now and at peak, and of this process and the other.
fn held(server: &Server, other: &Other) -> [u64; 4] {
    let report = server.node.report();
    let of = |pid: i32| {
        let rows = report["processes"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["pid"] == pid).expect("a row");
        row["cards"][0]["requested"]["now"].as_u64().expect("number")
    };
    let card = &report["cards"][0]["requested"];
    let number = |value: &Value| value.as_u64().expect("number");
    [number(&card["now"]), number(&card["peak"]), of(std::process::id() as i32), of(other.pid)]
}

/// A copy of a descriptor of another process.
fn copy_of(process: i32, descriptor: u64) -> OwnedFd {
    // SAFETY: the calls take numbers, and the descriptor is new and ours.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, process, 0);
        let copy = libc::syscall(libc::SYS_pidfd_getfd, process, descriptor, 0);
        assert!(copy >= 0, "{}", std::io::Error::last_os_error());
        libc::close(process as i32);
        OwnedFd::from_raw_fd(copy as i32)
    }
}

fn handle_of(pointer: u64) -> CUipcMemHandle {
    // SAFETY: a structure of numbers.
    let mut handle = unsafe { zeroed() };
    ok!(cuIpcGetMemHandle(&raw mut handle, pointer));
    handle
}

fn bytes_of(handle: &CUipcMemHandle) -> [u8; 64] {
    handle.reserved.map(|byte| byte as u8)
}

fn opened(word: [u8; 64]) -> (CUresult, u64) {
    let handle = CUipcMemHandle { reserved: word.map(|byte| byte as c_char) };
    let mut pointer = 0;
    // SAFETY: the out is valid.
    (unsafe { cuIpcOpenMemHandle_v2(&raw mut pointer, handle, 1) }, pointer)
}

/// One small and one large allocation.
#[test]
fn memory_with_an_ipc_handle_has_the_same_bytes_in_both_processes() {
    let path = socket("ipc");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let sizes = [1000, 5 << 20];
        let first = |other: &mut Other, server: &Server| {
            start();
            let neighbour = allocate(1000);
            ok!(cuMemsetD8_v2(neighbour, 3, 1000));
            for bytes in sizes {
                let pointer = allocate(bytes);
                ok!(cuMemsetD8_v2(pointer, 8, bytes));
                let handle = handle_of(pointer + 4);
                assert_eq!(bytes_of(&handle), bytes_of(&handle_of(pointer)), "of the allocation");
                assert_eq!(opened(bytes_of(&handle)).0, CUDA_ERROR_INVALID_CONTEXT);
                other.tell(&bytes_of(&handle));
                other.hear();
                assert_eq!((first_byte(pointer), first_byte(neighbour)), (9, 3));
                let total = bytes as u64 + 1000;
                let [now, _, ours, theirs] = held(server, other);
                assert_eq!([now, ours, theirs], [total, total, 0]);
                ok!(cuMemFree_v2(pointer));
                let [now, _, ours, theirs] = held(server, other);
                assert_eq!([now, ours, theirs], [total, 1000, bytes as u64]);
                // Its addresses have memory of their own again.
                let again = allocate(bytes);
                ok!(cuMemsetD8_v2(again, 1, bytes));
                ok!(cuMemFree_v2(again));
                other.tell(b"close");
                other.hear();
                assert_eq!(held(server, other)[0], 1000);
                other.tell(&bytes_of(&handle));
            }
            // SAFETY: our child.
            unsafe {
                let mut status = -1;
                libc::waitpid(other.pid, &raw mut status, 0);
                assert_eq!(status, 0, "the other process has failed");
            }
        };
        two("ipc", first, |other| {
            start();
            for bytes in sizes {
                let word = other.hear();
                let (result, pointer) = opened(word);
                assert_eq!((result, first_byte(pointer + 999)), (CUDA_SUCCESS, 8));
                assert_eq!(opened(word), (CUDA_SUCCESS, pointer));
                invalid!(cuMemsetD8_v2(pointer, 9, bytes + 1));
                invalid!(cuMemFree_v2(pointer));
                ok!(cuMemsetD8_v2(pointer, 9, bytes));
                other.tell(b"open");
                other.hear();
                ok!(cuIpcCloseMemHandle(pointer));
                ok!(cuMemsetD8_v2(pointer, 9, 1));
                ok!(cuIpcCloseMemHandle(pointer));
                invalid!(cuIpcCloseMemHandle(pointer));
                other.tell(b"closed");
                let word = other.hear();
                assert_eq!(opened(word).0, CUDA_ERROR_INVALID_HANDLE, "the owner has freed it");
            }
        });
    });
}

#[test]
fn only_linear_memory_has_an_ipc_handle() {
    alone(&[], || {
        start();
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        let (mut managed, mut pooled) = (0, 0);
        ok!(cuMemAllocManaged(&raw mut managed, 4096, CU_MEM_ATTACH_GLOBAL));
        ok!(cuMemAllocAsync(&raw mut pooled, 4096, null_mut()));
        let stack = (&raw const handle) as u64;
        for pointer in [managed, pooled, stack, 0] {
            invalid!(cuIpcGetMemHandle(&raw mut handle, pointer));
        }
        let pointer = allocate(4096);
        invalid!(cuIpcGetMemHandle(null_mut(), pointer));
        assert_eq!(opened([0; 64]).0, CUDA_ERROR_INVALID_VALUE);
        invalid!(cuIpcOpenMemHandle_v2(&mut 0, handle_of(pointer), 0));
        invalid!(cuIpcCloseMemHandle(pointer));
    });
}

fn exportable_pool() -> CUmemoryPool {
    // SAFETY: a structure of numbers and pointers.
    let mut properties: CUmemPoolProps = unsafe { zeroed() };
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = POSIX;
    properties.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    let mut pool = null_mut();
    ok!(cuMemPoolCreate(&raw mut pool, &raw const properties));
    pool
}

#[test]
fn allocations_of_an_imported_pool_have_their_owners_bytes() {
    let path = socket("pool");
    alone(&[("STUB_GPU_SOCKET", &path)], || {
        let first = |other: &mut Other, server: &Server| {
            start();
            let (pool, mut descriptor) = (exportable_pool(), -1i32);
            let out = (&raw mut descriptor).cast();
            ok!(cuMemPoolExportToShareableHandle(out, pool, POSIX, 0));
            other.tell(descriptor.to_string().as_bytes());
            let mut pointer = 0;
            ok!(cuMemAllocFromPoolAsync(&raw mut pointer, 1000, pool, null_mut()));
            ok!(cuMemAllocFromPoolAsync(&raw mut pointer, 1000, pool, null_mut()));
            ok!(cuMemsetD8_v2(pointer, 4, 1000));
            // SAFETY: a structure of numbers.
            let mut data: CUmemPoolPtrExportData = unsafe { zeroed() };
            ok!(cuMemPoolExportPointer(&raw mut data, pointer));
            other.tell(&data.reserved);
            other.hear();
            assert_eq!(first_byte(pointer + 999), 5);
            assert_eq!(held(server, other), [2000, 2000, 2000, 0]);
            other.tell(b"end");
            other.hear();
            ok!(cuMemFree_v2(pointer));
            ok!(cuMemPoolTrimTo(pool, 0));
            other.kill();
            let linear = allocate(1000);
            invalid!(cuMemPoolExportPointer(&raw mut data, linear));
        };
        two("pool", first, |other| {
            start();
            let descriptor = other.hear_number();
            let file = copy_of(other.pid, descriptor);
            let (mut pool, mut pointer) = (null_mut(), 0);
            let passed = without_provenance_mut(file.as_raw_fd() as usize);
            ok!(cuMemPoolImportFromShareableHandle(&raw mut pool, passed, POSIX, 0));
            let out = &raw mut pointer;
            let stream = null_mut();
            invalid!(cuMemAllocFromPoolAsync(out, 8, pool, stream));
            invalid!(cuDeviceSetMemPool(0, pool));
            let mut data = CUmemPoolPtrExportData { reserved: other.hear() };
            ok!(cuMemPoolImportPointer(out, pool, &raw mut data));
            assert_eq!((first_byte(pointer), first_byte(pointer + 999)), (4, 4));
            invalid!(cuMemsetD8_v2(pointer, 5, 1001));
            ok!(cuMemsetD8_v2(pointer, 5, 1000));
            other.tell(b"written");
            other.hear();
            ok!(cuMemFreeAsync(pointer, stream));
            invalid!(cuMemFree_v2(pointer));
            ok!(cuMemPoolDestroy(pool));
            other.tell(b"freed");
            other.hear();
        });
    });
}
