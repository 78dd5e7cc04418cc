//! Linear memory of one process in another: `cuIpcGetMemHandle` and its like.
//!
//! A handle says where the owner has the file with the bytes (`/proc/<pid>/fd/<n>`), and which
//! allocation of the ledger it is. The allocation is charged to its owner; if the owner frees it or
//! ends while another process has it open, it is charged to that one.

use crate::Answer;
use crate::boundary::Out;
use crate::context::{Context, current};
use crate::device;
use crate::memory::mapped::{Place, Purpose};
use crate::memory::{refused, shared_runs};
use crate::process::{Driver, lock};
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::sync::atomic::Ordering;
use stub_engine::backing::Area;
use stub_engine::ledger::ObjectId;
use stub_engine::memory_file::MemoryFile;

const MAGIC: u64 = u64::from_le_bytes(*b"stub ipc");

/// What a handle says.
#[derive(Clone, Copy)]
struct Handle {
    pid: u64,
    descriptor: u64,
    object: ObjectId,
    card: u64,
    start: u64,
    bytes: u64,
}

impl Handle {
    fn encode(&self) -> CUipcMemHandle {
        let words = [
            MAGIC,
            self.pid,
            self.descriptor,
            self.object[0],
            self.object[1],
            self.card,
            self.start,
            self.bytes,
        ];
        let mut reserved = [0; 64];
        for (place, byte) in reserved.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)) {
            *place = byte as core::ffi::c_char;
        }
        CUipcMemHandle { reserved }
    }

    fn decode(handle: &CUipcMemHandle) -> Option<Self> {
        let bytes = handle.reserved.map(|byte| byte as u8);
        let word = |index: usize| {
            let (words, _) = bytes.as_chunks::<8>();
            u64::from_le_bytes(words[index])
        };
        (word(0) == MAGIC).then(|| Self {
            pid: word(1),
            descriptor: word(2),
            object: [word(3), word(4)],
            card: word(5),
            start: word(6),
            bytes: word(7),
        })
    }

    /// The owner's file.
    fn file(&self) -> Option<MemoryFile> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let file = MemoryFile::of(file).ok()?;
        let end = self.start.checked_add(self.bytes)?;
        // The owner may have closed it, and the number may now be another file.
        let is_same = file.inode() == self.object[0] && file.what().as_deref() == Some("ipc");
        (is_same && self.bytes > 0 && end <= file.bytes()).then_some(file)
    }
}

/// Memory of another process that this one has open.
struct Opened {
    pointer: u64,
    count: u64,
    /// The owner number of its context.
    owner: u32,
    card: usize,
}

/// The memory that this process shares, and has open.
#[derive(Default)]
pub struct IpcTable {
    /// By device pointer.
    handles: BTreeMap<u64, Handle>,
    opened: BTreeMap<ObjectId, Opened>,
}

impl IpcTable {
    /// The object of an allocation that is freed, if it is shared.
    pub fn forget(&mut self, pointer: u64) -> Option<ObjectId> {
        self.handles.remove(&pointer).map(|handle| handle.object)
    }
}

/// `cuIpcGetMemHandle`
pub fn get_handle(out: Out<CUipcMemHandle>, pointer: CUdeviceptr) -> Answer {
    let (driver, ..) = current()?;
    let (space, offset) = driver.backing.locate(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let is_linear = matches!(driver.backing.area_of(space), Area::Linear | Area::Narrow);
    if out.is_null() || !is_linear {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut arena = lock(&driver.arenas[space]);
    let found = arena.find(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let base = driver.backing.pointer(space, found.base);
    let mut table = lock(&driver.ipc);
    if let Some(known) = table.handles.get(&base) {
        return out.put(known.encode());
    }
    let run = shared_runs::share(driver, &mut arena, space, offset)?;
    let card = driver.backing.card_of(space);
    // A new number: the offset alone may have been another allocation, which is still open.
    let object = [run.file.inode(), driver.new_id()];
    driver.engine.share(card, object, found.bytes);
    let handle = Handle {
        pid: std::process::id().into(),
        descriptor: run.file.descriptor() as u64,
        object,
        card: card as u64,
        start: run.start + (found.base - run.first),
        bytes: found.bytes,
    };
    table.handles.insert(base, handle);
    out.put(handle.encode())
}

/// Checks that a context can use memory of a card; returns the card's device ordinal.
fn reach(driver: &Driver, context: &Context, card: usize) -> Answer<CUdevice> {
    let device = driver.devices.iter().position(|known| *known == card);
    let device = device.ok_or(CUDA_ERROR_INVALID_DEVICE)? as CUdevice;
    let own = context.device.load(Ordering::Relaxed);
    let mut is_peer = 1;
    if device != own {
        device::can_access_peer(Out::of(&raw mut is_peer), own, device)?;
    }
    if is_peer == 0 { Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) } else { Ok(device) }
}

/// `cuIpcOpenMemHandle`: opening it again in the same context returns the same pointer.
pub fn open(pointer: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) -> Answer {
    let (driver, context, _) = current()?;
    if pointer.is_null() || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = Handle::decode(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let is_own = handle.pid == u64::from(std::process::id());
    if is_own && driver.shared_runs.has_inode(handle.object[0]) {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let card = handle.card as usize;
    let device = reach(driver, context, card)?;
    let mut table = lock(&driver.ipc);
    if let Some(opened) = table.opened.get_mut(&handle.object) {
        if opened.owner != context.index() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        opened.count += 1;
        return pointer.put(opened.pointer);
    }
    let file = handle.file().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    driver.engine.hold(card, handle.object, 0).map_err(refused)?;
    let range = handle.start..handle.start + handle.bytes;
    let (place, owner) = (Place::Device(device), context.index());
    let mapped = driver
        .mapped
        .add(&file, &range, Purpose::Ipc, place, Some(owner))
        .inspect_err(|_| driver.engine.drop_hold(card, handle.object))?;
    table.opened.insert(handle.object, Opened { pointer: mapped, count: 1, owner, card });
    pointer.put(mapped)
}

impl IpcTable {
    fn object_at(&self, pointer: u64) -> Option<ObjectId> {
        let mut found = self.opened.iter().filter(|(_, opened)| opened.pointer == pointer);
        found.next().map(|(object, _)| *object)
    }

    fn close(&mut self, driver: &Driver, object: ObjectId) {
        let Some(opened) = self.opened.remove(&object) else { return };
        driver.engine.drop_hold(opened.card, object);
        // Dropping the mapping frees the addresses.
        drop(driver.mapped.remove(opened.pointer, |purpose| purpose == Purpose::Ipc));
    }
}

/// `cuIpcCloseMemHandle`
pub fn close(pointer: CUdeviceptr) -> Answer {
    let (driver, ..) = current()?;
    let mut table = lock(&driver.ipc);
    let object = table.object_at(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let opened = table.opened.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    opened.count -= 1;
    if opened.count == 0 {
        table.close(driver, object);
    }
    Ok(())
}

/// Closes everything that a context has open.
pub fn close_all(driver: &Driver, context: &Context) {
    let mut table = lock(&driver.ipc);
    let owned = table.opened.iter().filter(|(_, opened)| opened.owner == context.index());
    for object in owned.map(|(object, _)| *object).collect::<Vec<_>>() {
        table.close(driver, object);
    }
}
