//! The functions behind our wrappers: where the program's own driver has them.
//!
//! The library never loads the CUDA driver. A program that calls CUDA has loaded it, by whatever name
//! and path; it is recognised by its SONAME, and its functions are looked up once, all together.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::roads::objects;
use crate::table::{ROW_COUNT, ROWS, Symbol};

/// The two libraries that we stand in front of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Library {
    /// The CUDA driver.
    Cuda,
    /// The NVIDIA management library.
    Nvml,
}

impl Library {
    pub(crate) const fn soname(self) -> &'static CStr {
        match self {
            Library::Cuda => c"libcuda.so.1",
            Library::Nvml => c"libnvidia-ml.so.1",
        }
    }
}

/// One symbol of the hook table.
pub(crate) struct Row {
    pub(crate) library: Library,
    pub(crate) name: &'static str,
    export: Option<fn() -> usize>,
}

impl Row {
    pub(crate) const fn hooked(
        library: Library,
        name: &'static str,
        export: fn() -> usize,
    ) -> Self {
        Self { library, name, export: Some(export) }
    }

    pub(crate) const fn called(library: Library, name: &'static str) -> Self {
        Self { library, name, export: None }
    }

    /// The address of our wrapper, if the symbol is hooked.
    pub(crate) fn wrapper(&self) -> Option<usize> {
        self.export.map(|export| export())
    }
}

/// In [`REAL`]: nobody has looked yet.
const UNRESOLVED: usize = 0;
/// In [`REAL`]: the loaded driver has no such symbol.
const ABSENT: usize = 1;

/// The driver's address of each row. The launch wrappers read it from assembly.
pub(crate) static REAL: [AtomicUsize; ROW_COUNT] =
    [const { AtomicUsize::new(UNRESOLVED) }; ROW_COUNT];

/// Where the loaded driver has this symbol; `None` if it lacks it or no driver is loaded.
#[inline]
pub(crate) fn address(symbol: Symbol) -> Option<usize> {
    let known = slot(symbol).load(Ordering::Relaxed);
    if known > ABSENT { Some(known) } else { resolve_slowly(symbol, known) }
}

#[inline]
fn slot(symbol: Symbol) -> &'static AtomicUsize {
    // Symbol has ROW_COUNT variants, so the index is always in bounds; the compiler sees that too.
    #[allow(clippy::indexing_slicing)]
    &REAL[symbol as usize]
}

#[cold]
fn resolve_slowly(symbol: Symbol, known: usize) -> Option<usize> {
    if known == ABSENT {
        return None;
    }
    #[allow(clippy::indexing_slicing)] // as in `slot`
    let library = ROWS[symbol as usize].library;
    resolve(library, None);
    let now = slot(symbol).load(Ordering::Relaxed);
    (now > ABSENT).then_some(now)
}

/// Looks up every row of a library in the driver that is loaded; `inside`, where given, is an
/// address in it. Does nothing as long as no driver is loaded. Racing threads store the same values.
pub(crate) fn resolve(library: Library, inside: Option<usize>) {
    let Some(handle) = objects::open_loaded(library.soname(), inside) else { return };
    for (row, real) in ROWS.iter().zip(&REAL) {
        if row.library == library && real.load(Ordering::Relaxed) == UNRESOLVED {
            let found = lookup(handle, row.name);
            real.store(if found == 0 { ABSENT } else { found }, Ordering::Relaxed);
        }
    }
}

fn lookup(handle: *mut c_void, name: &str) -> usize {
    let Ok(name) = CString::new(name) else { return 0 };
    // SAFETY: the handle is open and stays so; the name is a C string.
    unsafe { crate::roads::real_dlsym(handle, name.as_ptr()) as usize }
}

/// The row that hooks this name.
#[cfg_attr(test, allow(dead_code))] // asked by dlsym, which a test binary does not export
pub(crate) fn hooked_row(name: &[u8]) -> Option<usize> {
    ROWS.iter().position(|row| row.name.as_bytes() == name && row.wrapper().is_some())
}

/// The wrapper for an address that the driver gave out, if we hook what lives there.
pub(crate) fn wrapper_of(address: usize) -> Option<usize> {
    if address <= ABSENT {
        return None;
    }
    ROWS.iter()
        .zip(&REAL)
        .find(|(_, real)| real.load(Ordering::Relaxed) == address)
        .and_then(|(row, _)| row.wrapper())
}

/// What can be called for a symbol in any case. Nothing unwinds out of here.
#[inline]
pub(crate) fn callable(symbol: Symbol) -> usize {
    let known = slot(symbol).load(Ordering::Relaxed);
    if known > ABSENT { known } else { jump_target(symbol as usize) }
}

/// Where a launch goes: the driver's function, or one that answers NOT_SUPPORTED. Called from the
/// tail jumps the first time, with the row's index.
pub(crate) extern "C" fn jump_target(index: usize) -> usize {
    crate::boundary::guard(|| {
        let real = REAL.get(index)?;
        if real.load(Ordering::Relaxed) == UNRESOLVED {
            resolve(ROWS.get(index)?.library, None);
        }
        let now = real.load(Ordering::Relaxed);
        (now > ABSENT).then_some(now)
    })
    .flatten()
    .unwrap_or(absent as *const () as usize)
}

/// Stands in for a launch function that the driver lacks; it reads none of its arguments.
extern "C" fn absent() -> driver_sys::cuda::CUresult {
    driver_sys::cuda::CUDA_ERROR_NOT_SUPPORTED
}
