//! The C library's own versions of what this library interposes.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One function, looked up when it is first needed.
#[derive(Debug)]
pub struct Real {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Its address; the program ends if there is none.
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        assert_ne!(address, 0, "stub-clock: {:?} is not there", self.name);
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// `real!(usleep as fn(libc::useconds_t) -> c_int)` is the C library's function of that name; for use in
/// `unsafe`, since nothing checks that it has this signature.
macro_rules! real {
    ($name:ident as fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        static REAL: $crate::real::Real = {
            const NAME: &str = concat!(stringify!($name), "\0");
            match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => $crate::real::Real::new(name),
                Err(_) => panic!("a name without zeroes"),
            }
        };
        std::mem::transmute::<usize, unsafe extern "C" fn($($argument),*) -> $result>(REAL.address())
    }};
}
pub(crate) use real;
