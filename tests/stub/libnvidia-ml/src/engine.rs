//! The engine that NVML reads, from `nvmlInit` to the last `nvmlShutdown`.
//!
//! With a server NVML has its own connection; a forked child opens a new one. Without a server the
//! engine is inside the stub `libcuda.so.1` of this process, if that is loaded, and NVML reads it
//! through an export that no real driver has.

use crate::{Answer, events};
use driver_sys::nvml::{NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_UNINITIALIZED};
use std::ffi::CStr;
use std::mem::transmute;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stub_engine::client::Client;
use stub_engine::counters::Counters;
use stub_engine::local::Local;
use stub_engine::profile::Card;
use stub_engine::settings::Settings;
use stub_engine::symbols::Library;
use stub_engine::{ProcessUse, Usage, Watch};

struct State {
    /// `nvmlInit` calls without their `nvmlShutdown`.
    initialized: u32,
    opened: Option<Opened>,
}

#[derive(Clone)]
struct Opened {
    /// The process that opened it.
    process: u32,
    watch: Arc<dyn Watch>,
    /// The cards that the process has: the engine's card of each index of NVML.
    devices: Arc<[usize]>,
}

static STATE: Mutex<State> = Mutex::new(State { initialized: 0, opened: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() -> Answer<Opened> {
    let settings = Settings::from_environment();
    let opened: Result<Arc<dyn Watch>, String> = match &settings.socket {
        Some(socket) => Client::connect(socket, Library::Nvml, &settings.group)
            .map(|client| Arc::new(client) as Arc<dyn Watch>),
        None => Local::new(&settings).map(|local| Arc::new(Beside(local)) as Arc<dyn Watch>),
    };
    let watch = opened.map_err(|error| {
        eprintln!("stub libnvidia-ml: {error}");
        NVML_ERROR_DRIVER_NOT_LOADED
    })?;
    let devices = settings.present(watch.cards()).iter().map(|card| card.index).collect();
    Ok(Opened { process: std::process::id(), watch, devices })
}

impl State {
    /// The engine, opened by this process.
    fn opened(&mut self) -> Answer<Opened> {
        match &self.opened {
            Some(opened) if opened.process == std::process::id() => Ok(opened.clone()),
            _ => Ok(self.opened.insert(open()?).clone()),
        }
    }
}

/// `nvmlInit`, `nvmlInit_v2`
pub fn init() -> Answer {
    let mut state = state();
    state.opened()?;
    state.initialized += 1;
    Ok(())
}

/// `nvmlInitWithFlags`
pub fn init_with_flags(_flags: u32) -> Answer {
    init()
}

/// `nvmlShutdown`
pub fn shutdown() -> Answer {
    let mut state = state();
    state.initialized = state.initialized.checked_sub(1).ok_or(NVML_ERROR_UNINITIALIZED)?;
    if state.initialized == 0 {
        state.opened = None;
        events::free_all();
    }
    Ok(())
}

fn initialized() -> Answer<Opened> {
    let mut state = state();
    if state.initialized == 0 {
        return Err(NVML_ERROR_UNINITIALIZED);
    }
    state.opened()
}

/// The engine, once NVML is initialised.
pub fn watch() -> Answer<Arc<dyn Watch>> {
    Ok(initialized()?.watch)
}

/// The engine's card of each index of NVML: those that the process had when it opened the engine.
pub fn devices() -> Answer<Arc<[usize]>> {
    Ok(initialized()?.devices)
}

/// The engine, if this process has already opened it.
pub fn peek() -> Option<Arc<dyn Watch>> {
    let state = state();
    let opened = state.opened.as_ref()?;
    (opened.process == std::process::id()).then(|| Arc::clone(&opened.watch))
}

/// The in-process engine's cards, with the use that the stub libcuda of this process reports.
struct Beside(Local);

type CardUsage = unsafe extern "C" fn(usize, *mut u64, *mut u64, *mut u32) -> bool;

/// A function of the stub libcuda, if that is loaded.
fn neighbour(name: &CStr) -> Option<CardUsage> {
    // SAFETY: with RTLD_NOLOAD nothing is loaded; the name is the stub's own, so that what is found
    // is the function of that signature. The handle's count is released.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let symbol = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        (!symbol.is_null()).then(|| transmute::<*mut libc::c_void, CardUsage>(symbol))
    }
}

impl Watch for Beside {
    fn cards(&self) -> &[Card] {
        self.0.cards()
    }

    fn usage(&self, card: usize, _now: u64) -> Option<Usage> {
        let mut usage = Usage::default();
        if let Some(card_usage) = neighbour(c"stub_card_usage") {
            let Usage { used, busy_ns, percent } = &mut usage;
            // SAFETY: all places are valid. Where it answers no, nothing is used yet.
            unsafe { card_usage(card, used, busy_ns, percent) };
        }
        Some(usage)
    }

    fn used(&self, card: usize) -> Option<u64> {
        self.usage(card, 0).map(|usage| usage.used)
    }

    fn processes(&self, card: usize, now: u64) -> Option<Vec<ProcessUse>> {
        let Usage { used: bytes, busy_ns, percent } = self.usage(card, now)?;
        let process = ProcessUse {
            pid: std::process::id(),
            bytes,
            peak: bytes,
            busy_ns,
            percent,
            instances: None,
        };
        Some(if bytes > 0 { vec![process] } else { Vec::new() })
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}
