//! The driver's address of every function in the hook table.
//!
//! The library never loads the CUDA driver. A program that calls CUDA has loaded it already, by any
//! name and path. This module recognises the driver by its SONAME and looks all its functions up at
//! once.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use driver_sys::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUresult};

use crate::guard::guard;
use crate::{libdl, objects};

/// The two libraries whose functions are hooked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// The CUDA driver.
    Cuda,
    /// The NVIDIA management library.
    Nvml,
}

impl Library {
    /// The name by which a loaded object is recognised as this library.
    pub const fn soname(self) -> &'static CStr {
        match self {
            Library::Cuda => c"libcuda.so.1",
            Library::Nvml => c"libnvidia-ml.so.1",
        }
    }
}

/// The properties of a symbol that are known at compile time. A row has no pointer, because the
/// loader would write it into each process.
struct Row {
    library: Library,
    /// In [`NAMES`].
    start: usize,
    end: usize,
}

/// Expands the hook table to [`Symbol`] and one [`Row`] per symbol.
macro_rules! symbols {
    ($(library $library:ident ($signature:ident, $absent:ident) {$(
        $section:ident $($refusal:ident)? {$(
            $name:ident $(=> $first:tt $(:: $rest:ident)* $($second:ident)*)?;
        )*}
    )*})*) => {
        /// Every driver function that the library hooks or calls.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Symbol {
            $($($($name,)*)*)*
        }

        const COUNT: usize = [$($($(Symbol::$name,)*)*)*].len();

        /// All names in the order of [`Symbol`], each with the zero byte that ends a C string.
        const NAMES: &str = concat!($($($(stringify!($name), "\0",)*)*)*);

        const LIBRARIES: [Library; COUNT] = [$($($(symbols!(@$library $name),)*)*)*];
    };
    (@$library:ident $name:ident) => { Library::$library };
}

vgpu_table::hook_table!(symbols);

/// In the order of [`Symbol`].
static ROWS: [Row; COUNT] = rows();

#[allow(clippy::indexing_slicing)] // evaluated at compile time
const fn rows() -> [Row; COUNT] {
    let mut rows = [const { Row { library: Library::Cuda, start: 0, end: 0 } }; COUNT];
    let (mut row, mut start, mut at) = (0, 0, 0);
    while at < NAMES.len() {
        if NAMES.as_bytes()[at] == 0 {
            rows[row] = Row { library: LIBRARIES[row], start, end: at };
            (row, start) = (row + 1, at + 1);
        }
        at += 1;
    }
    rows
}

impl Row {
    fn name(&self) -> &'static str {
        NAMES.get(self.start..self.end).unwrap_or_default()
    }
}

/// In [`REAL`]: not looked up yet.
const UNRESOLVED: usize = 0;
/// In [`REAL`]: the loaded driver has no such symbol.
const ABSENT: usize = 1;

/// The driver's address of each symbol, or one of the two values above. The launch wrappers read it
/// from assembly.
pub static REAL: [AtomicUsize; COUNT] = [const { AtomicUsize::new(UNRESOLVED) }; COUNT];

impl Symbol {
    /// The name that the driver exports.
    pub fn name(self) -> &'static str {
        self.row().name()
    }

    /// The library that exports it.
    pub fn library(self) -> Library {
        self.row().library
    }

    #[allow(clippy::indexing_slicing)] // there is one row per symbol
    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    #[inline]
    #[allow(clippy::indexing_slicing)] // as above; the compiler removes the check
    fn cell(self) -> &'static AtomicUsize {
        &REAL[self as usize]
    }

    /// The address of the function in the loaded driver. `None` if the driver lacks it, or if no
    /// driver is loaded.
    #[inline]
    pub fn address(self) -> Option<usize> {
        let known = self.cell().load(Ordering::Relaxed);
        if known > ABSENT { Some(known) } else { self.resolve_slowly(known) }
    }

    /// The address, if the driver's functions have been looked up before.
    pub fn known_address(self) -> Option<usize> {
        Some(self.cell().load(Ordering::Relaxed)).filter(|known| *known > ABSENT)
    }

    #[cold]
    fn resolve_slowly(self, known: usize) -> Option<usize> {
        if known == ABSENT {
            return None;
        }
        resolve(self.library(), None);
        self.known_address()
    }

    /// An address that can be called in any case: the driver's function, or one that returns
    /// `CUDA_ERROR_NOT_SUPPORTED`. Nothing unwinds out of here, and the compiler knows that: a
    /// caller whose thread is cancelled in the driver must have nothing to clean up.
    #[inline]
    pub fn callable(self) -> usize {
        let known = self.cell().load(Ordering::Relaxed);
        if known > ABSENT { known } else { self.callable_slowly() }
    }

    #[cold]
    extern "C" fn callable_slowly(self) -> usize {
        guard(|| self.address()).flatten().unwrap_or(absent as *const () as usize)
    }
}

/// Called instead of a function that the driver lacks. It reads none of its arguments.
extern "C" fn absent() -> CUresult {
    CUDA_ERROR_NOT_SUPPORTED
}

/// Looks up all functions of a library in the driver that is loaded. If the process has loaded
/// several, `inside` selects one by an address in it. Does nothing until a driver is loaded.
/// Threads that race here store the same values.
///
/// Until cuInit succeeds, we use the driver in which the program last looked up a function. It may
/// be the stub library of NVIDIA's toolkit, which has the driver's SONAME, and which programs
/// close before they open the driver.
pub fn resolve(library: Library, inside: Option<usize>) {
    let Some(handle) = objects::open_loaded(library.soname(), inside) else { return };
    let is_kept = library == Library::Nvml || IS_KEPT.load(Ordering::Relaxed);
    fill(library, handle, inside.is_some() && !is_kept);
    if !is_kept {
        hold(handle);
    }
}

/// A handle of the driver whose addresses are stored. A program may look up a function, close the
/// driver, and load a plug-in that is linked with it: then the addresses must still be right.
static HELD: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn hold(handle: *mut c_void) {
    let before = HELD.swap(handle, Ordering::Relaxed);
    if !before.is_null() {
        // SAFETY: it was opened here, and closed nowhere else.
        unsafe { libdl::dlclose(before) };
    }
}

/// Whether the program can choose no other driver any more.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Keeps the driver that is initialised now, whatever the program opens and closes.
pub fn keep_driver() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

/// Forgets the functions of the library whose cuInit has returned `CUDA_ERROR_STUB_LIBRARY`, and
/// takes those of another driver, if one is loaded.
pub fn leave_stub_library() {
    let stub = Symbol::cuInit.known_address();
    for (_, real) in ROWS.iter().zip(&REAL).filter(|(row, _)| row.library == Library::Cuda) {
        real.store(UNRESOLVED, Ordering::Relaxed);
    }
    let other = objects::open_other(Library::Cuda.soname(), stub);
    if let Some(handle) = other {
        fill(Library::Cuda, handle, false);
    }
    hold(other.unwrap_or(null_mut()));
}

/// Stores the addresses of a library's functions, also over those that are known if `all` is set.
fn fill(library: Library, handle: *mut c_void, all: bool) {
    for (row, real) in ROWS.iter().zip(&REAL) {
        if row.library == library && (all || real.load(Ordering::Relaxed) == UNRESOLVED) {
            // SAFETY: the handle is open; a zero byte follows the name.
            let found = unsafe { libdl::dlsym(handle, row.name().as_ptr().cast()) } as usize;
            real.store(if found == 0 { ABSENT } else { found }, Ordering::Relaxed);
        }
    }
}
