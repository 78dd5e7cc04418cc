//! `cuGetProcAddress`: which form of a function a program means by a name.
//!
//! A name has several forms. The right one depends on the CUDA version that the program was built
//! with, and on whether NULL is the per-thread default stream. The rows come from cudaTypedefs.h.

use crate::Answer;
use crate::boundary::{Host, Out, Text};
use crate::table;
use crate::version;
use core::ffi::c_void;
use driver_sys::cuda::*;
use driver_sys::versions::VERSIONS;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Symbol(&'static str),
    /// The name exists, but not yet in the requested version.
    TooOld,
    Nothing,
}

/// The symbol that a driver of version `driver` returns for `name`.
fn find(name: &str, version: i32, per_thread: bool, driver: i32) -> Found {
    let start = VERSIONS.partition_point(|row| row.0 < name);
    let rows = VERSIONS[start..].iter().take_while(|row| row.0 == name);
    let rows: Vec<_> = rows.filter(|row| row.1 <= driver).collect();
    let newest = |per_thread: bool| {
        let fitting = rows.iter().filter(|row| row.1 <= version && row.2 == per_thread);
        fitting.max_by_key(|row| row.1).map(|row| (row.1, row.3))
    };
    let plain = newest(false);
    let threaded = if per_thread { newest(true) } else { None };
    // A form for per-thread default streams is preferred to a plain one of the same version.
    let best = match (plain, threaded) {
        (Some(plain), Some(threaded)) if plain.0 > threaded.0 => Some(plain),
        (_, Some(threaded)) => Some(threaded),
        (plain, None) => plain,
    };
    match best {
        Some((_, symbol)) => Found::Symbol(symbol),
        None if rows.is_empty() => Found::Nothing,
        None => Found::TooOld,
    }
}

fn addresses() -> &'static HashMap<&'static str, usize> {
    static ADDRESSES: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    ADDRESSES.get_or_init(|| table::exports().into_iter().collect())
}

/// `cuGetProcAddress_v2`
pub fn proc_address_v2(
    name: Text,
    address: Out<*mut c_void>,
    version: i32,
    flags: u64,
    status: Out<CUdriverProcAddressQueryResult>,
) -> Answer {
    let name = name.get()?;
    let known = u64::from(
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    );
    if address.is_null() || flags & !known != 0 || flags == known {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let per_thread = flags == u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    let driver = version::of_driver().unwrap_or(0);
    let found = find(&name, version, per_thread, driver);
    let symbol = if let Found::Symbol(symbol) = found { addresses().get(symbol) } else { None };
    status.put_optional(match (found, symbol) {
        (Found::TooOld, _) => CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        (_, None) => CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
        (_, Some(_)) => CU_GET_PROC_ADDRESS_SUCCESS,
    });
    address.put(symbol.copied().unwrap_or(0) as *mut c_void)?;
    symbol.map(drop).ok_or(CUDA_ERROR_NOT_FOUND)
}

/// `cuGetProcAddress`
pub fn proc_address(name: Text, address: Out<*mut c_void>, version: i32, flags: u64) -> Answer {
    proc_address_v2(name, address, version, flags, Out::of(core::ptr::null_mut()))
}

/// `cuGetExportTable`: finds no table.
pub fn export_table(table: Out<*const c_void>, id: Host) -> Answer {
    if id.0 == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    table.put(core::ptr::null())?;
    Err(CUDA_ERROR_NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_header_leads_to_an_export() {
        for (name, version, per_thread, symbol) in VERSIONS {
            assert!(addresses().contains_key(symbol), "{symbol} is not exported");
            let found = find(name, *version, *per_thread, 13050);
            assert_eq!(found, Found::Symbol(symbol), "{name} of {version}");
        }
    }

    #[test]
    fn versions_pick_the_form_of_their_time() {
        assert_eq!(find("cuMemAlloc", 2000, false, 13050), Found::Symbol("cuMemAlloc"));
        assert_eq!(find("cuMemAlloc", 12000, false, 13050), Found::Symbol("cuMemAlloc_v2"));
        assert_eq!(find("cuCtxGetDevice", 13000, false, 13050), Found::Symbol("cuCtxGetDevice_v2"));
        assert_eq!(find("cuCtxGetDevice", 13000, false, 12080), Found::Symbol("cuCtxGetDevice"));
        assert_eq!(
            find("cuLaunchKernel", 12000, true, 13050),
            Found::Symbol("cuLaunchKernel_ptsz")
        );
        assert_eq!(find("cuInit", 12000, true, 13050), Found::Symbol("cuInit"));
        assert_eq!(find("cuLibraryLoadData", 11000, false, 13050), Found::TooOld);
        assert_eq!(find("cuLibraryLoadData", 13000, false, 11080), Found::Nothing);
        for unknown in ["", "cuMemAlloc_v2", "cudaMalloc", "cuNoSuchThing"] {
            assert_eq!(find(unknown, 13050, false, 13050), Found::Nothing, "{unknown:?}");
        }
    }
}
