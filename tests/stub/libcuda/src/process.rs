//! The driver's state in this process, and the effect of a fork.
//!
//! A child that was forked after `cuInit` has no driver: every call returns
//! `CUDA_ERROR_NOT_INITIALIZED`, `cuInit` included, as with the real driver. A child of a parent
//! that never called `cuInit` can call it. The state is on pages that the kernel clears in every
//! child (`MADV_WIPEONFORK`), however the child was created.

use crate::capture::Captures;
use crate::context::Context;
use crate::context::green::Green;
use crate::context::primary::Primary;
use crate::context::resources::Descriptor;
use crate::graph::model::Graphs;
use crate::memory::array::Array;
use crate::memory::array::mipmap::Mipmap;
use crate::memory::external::ExternalTable;
use crate::memory::graph_pool::GraphMemory;
use crate::memory::host::HostTable;
use crate::memory::ipc::IpcTable;
use crate::memory::mapped::Mappings;
use crate::memory::pool::Pools;
use crate::memory::shared_runs::SharedRuns;
use crate::memory::texture::Texture;
use crate::memory::vmm::Vmm;
use crate::module::Module;
use crate::module::function::Function;
use crate::module::link::Link;
use crate::slab::Slab;
use crate::stream::Stream;
use crate::stream::event::Event;
use crate::{Answer, device};
use driver_sys::cuda::{
    CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE,
    CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_OPERATING_SYSTEM,
};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use stub_engine::arena::Arena;
use stub_engine::backing::Backing;
use stub_engine::client::{self, Client};
use stub_engine::clock::{Clock, RealClock, VirtualClock};
use stub_engine::counters::Counters;
use stub_engine::durations::Durations;
use stub_engine::local::Local;
use stub_engine::profile::{self, Card};
use stub_engine::settings::Settings;
use stub_engine::symbols::Library;
use stub_engine::{Engine, boundary};

/// Everything that `cuInit` creates. It exists until the process ends.
pub struct Driver {
    pub engine: &'static dyn Engine,
    /// The engine's counters, for the launch path.
    pub counters: &'static Counters,
    /// The engine's card of each device ordinal.
    pub devices: Vec<usize>,
    pub backing: Backing,
    /// By address space.
    pub arenas: Vec<Mutex<Arena>>,
    pub host: Mutex<HostTable>,
    pub mapped: Mappings,
    pub vmm: Mutex<Vmm>,
    pub shared_runs: SharedRuns,
    pub ipc: Mutex<IpcTable>,
    pub external: Mutex<ExternalTable>,
    pub pools: Pools,
    pub graph_memory: GraphMemory,
    pub graphs: Mutex<Graphs>,
    pub captures: Captures,
    pub clock: Box<dyn Clock>,
    /// Whether a launch returns when its kernel has ended.
    pub is_launch_blocking: bool,
    /// Whether there is an MPS daemon whose client the real driver would be.
    pub is_mps_client: bool,
    pub contexts: Slab<Context>,
    pub greens: Slab<Green>,
    /// The resource descriptors.
    pub descriptors: Slab<Descriptor>,
    /// By device ordinal.
    pub primaries: Vec<Mutex<Primary>>,
    pub streams: Slab<Stream>,
    pub events: Slab<Event>,
    pub modules: Slab<Module>,
    /// Whether modules or local memory take memory of a card.
    pub charges_modules: bool,
    pub functions: Slab<Function>,
    pub links: Slab<Link>,
    pub textures: Slab<Texture>,
    pub arrays: Slab<Array>,
    pub mipmaps: Slab<Mipmap>,
    /// The kernel durations that were last read, and their version.
    pub durations: Mutex<(u64, Durations)>,
    /// Source of ids for contexts, streams and allocations.
    pub next_id: AtomicU64,
}

/// The state that a forked child must not have.
#[repr(C)]
pub struct Wiped {
    driver: AtomicPtr<Driver>,
    /// The engine's counters, once there is an engine.
    counters: AtomicPtr<Counters>,
    /// Calls before that.
    early: Counters,
}

impl Wiped {
    /// The counters in use now.
    pub fn counters(&self) -> &Counters {
        let counters = self.counters.load(Ordering::Acquire);
        // SAFETY: the engine whose counters these are is never freed.
        unsafe { counters.as_ref() }.unwrap_or(&self.early)
    }

    /// Uses the engine's counters from now on.
    fn adopt(&self, counters: &'static Counters) {
        for (early, counter) in self.early.calls.iter().zip(&counters.calls) {
            counter.fetch_add(early.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        self.counters.store(std::ptr::from_ref(counters).cast_mut(), Ordering::Release);
    }
}

static WIPED: AtomicPtr<Wiped> = AtomicPtr::new(null_mut());
/// Not wiped, so that a child knows whether its parent had a driver.
static WAS_INITIALIZED: AtomicBool = AtomicBool::new(false);
static INITIALIZING: Mutex<()> = Mutex::new(());

/// The wiped pages; `None` when the system has none.
pub fn wiped() -> Option<&'static Wiped> {
    let known = WIPED.load(Ordering::Acquire);
    // SAFETY: once set it is a mapping that is never unmapped, and zero bytes are a valid `Wiped`.
    unsafe { known.as_ref() }.or_else(map_wiped)
}

#[cold]
fn map_wiped() -> Option<&'static Wiped> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice; it is zero, which is a
    // valid `Wiped`; the loser of a race unmaps its own.
    unsafe {
        let size = size_of::<Wiped>();
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(null_mut(), size, access, flags, -1, 0);
        if start == libc::MAP_FAILED || libc::madvise(start, size, libc::MADV_WIPEONFORK) != 0 {
            return None;
        }
        let ours = start.cast::<Wiped>();
        match WIPED.compare_exchange(null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => ours.as_ref(),
            Err(first) => {
                libc::munmap(start, size);
                first.as_ref()
            }
        }
    }
}

/// The driver, once `cuInit` has created it.
#[inline]
pub fn driver() -> Answer<&'static Driver> {
    // SAFETY: as in `wiped`; the driver is never freed.
    unsafe {
        WIPED
            .load(Ordering::Acquire)
            .as_ref()
            .and_then(|wiped| wiped.driver.load(Ordering::Acquire).as_ref())
            .ok_or(CUDA_ERROR_NOT_INITIALIZED)
    }
}

/// Locks, even if the last holder has panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `cuInit`
pub fn init(flags: u32) -> Answer {
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let _one_at_a_time = lock(&INITIALIZING);
    if driver().is_ok() {
        return Ok(());
    }
    if WAS_INITIALIZED.load(Ordering::Acquire) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    let wiped = wiped().ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
    let driver = Driver::new(&Settings::from_environment()).map_err(|error| {
        if let Some(error) = error {
            eprintln!("stub libcuda: {error}");
        }
        CUDA_ERROR_NO_DEVICE
    })?;
    wiped.adopt(driver.counters);
    // The server's orders are not known before.
    if let Some(symbol) = Library::Cuda.symbols().iter().position(|symbol| *symbol == "cuInit") {
        boundary::delay(driver.counters, symbol);
    }
    WAS_INITIALIZED.store(true, Ordering::Release);
    wiped.driver.store(Box::into_raw(Box::new(driver)), Ordering::Release);
    Ok(())
}

/// The engine's cards, also before `cuInit`; empty when there is no engine.
pub fn cards() -> &'static [Card] {
    static CARDS: OnceLock<Vec<Card>> = OnceLock::new();
    CARDS.get_or_init(|| cards_now(&Settings::from_environment()))
}

/// The engine's cards, with their MIG instances of now.
fn cards_now(settings: &Settings) -> Vec<Card> {
    let cards = match &settings.socket {
        Some(socket) => client::cards(socket),
        None => profile::cards(&settings.cards),
    };
    cards.unwrap_or_else(|error| {
        eprintln!("stub libcuda: {error}");
        Vec::new()
    })
}

impl Driver {
    /// `Err(None)` when there is no visible device.
    fn new(settings: &Settings) -> Result<Self, Option<String>> {
        let cards = cards_now(settings);
        let usable = settings.usable(&settings.present(&cards));
        let visible = device::visible(&usable, settings.visible_devices.as_deref());
        let devices: Vec<usize> = visible.iter().map(|card| card.index).collect();
        let Some(last) = visible.last() else { return Err(None) };
        let engine: Box<dyn Engine> = match &settings.socket {
            Some(socket) => {
                let mut client = Client::connect(socket, Library::Cuda, &settings.group)?;
                if last.is_mig_device {
                    client.open(last)?;
                }
                Box::new(client)
            }
            None => Box::new(Local::new(settings)?),
        };
        let engine: &'static dyn Engine = Box::leak(engine);
        let memory: Vec<_> = engine.cards().iter().map(|card| card.profile.memory).collect();
        let backing = Backing::reserve(&memory)?;
        let arenas =
            backing.spaces().into_iter().map(|size| Mutex::new(Arena::new(size))).collect();
        Ok(Self {
            engine,
            counters: engine.counters(),
            pools: Pools::new(&devices),
            graph_memory: GraphMemory::new(
                devices.iter().map(|card| engine.cards()[*card].profile.graph_unit),
            ),
            primaries: devices.iter().map(|_| Mutex::default()).collect(),
            devices,
            backing,
            arenas,
            host: Mutex::default(),
            mapped: Mappings::default(),
            vmm: Mutex::default(),
            shared_runs: SharedRuns::default(),
            ipc: Mutex::default(),
            external: Mutex::default(),
            graphs: Mutex::default(),
            captures: Captures::default(),
            clock: if settings.has_virtual_clock {
                Box::new(VirtualClock::default())
            } else {
                Box::new(RealClock)
            },
            is_launch_blocking: settings.is_launch_blocking,
            is_mps_client: settings.mps_pipes.join("control").exists(),
            contexts: Slab::new(),
            greens: Slab::new(),
            descriptors: Slab::new(),
            streams: Slab::new(),
            events: Slab::new(),
            modules: Slab::new(),
            charges_modules: engine
                .cards()
                .iter()
                .any(|card| card.profile.module_granule > 0 || card.profile.limits_take_memory),
            functions: Slab::new(),
            links: Slab::new(),
            textures: Slab::new(),
            arrays: Slab::new(),
            mipmaps: Slab::new(),
            durations: Mutex::default(),
            next_id: AtomicU64::new(1),
        })
    }

    /// The card of a device ordinal.
    pub fn card(&self, ordinal: i32) -> Answer<&'static Card> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.devices.get(ordinal))
            .map(|card| &self.engine.cards()[*card])
            .ok_or(driver_sys::cuda::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Nothing runs on a lost card.
    #[inline]
    pub fn check_lost(&self, card: usize) -> Answer {
        if self.counters.health.lost.has(card) {
            return Err(CUDA_ERROR_DEVICE_UNAVAILABLE);
        }
        Ok(())
    }

    /// A new number.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// A handle as C sees it.
pub fn handle<T>(handle: usize) -> *mut T {
    without_provenance_mut(handle)
}
