//! Copies of a line of bytes to or from an array. It lies in the array's first row: the functions
//! are documented for arrays of one dimension.

use crate::Answer;
use crate::boundary::Host;
use crate::context::current;
use crate::memory::copy::Side;
use crate::memory::forms::{End, line};
use crate::memory::volume;
use driver_sys::cuda::*;

fn now(to: End, from: End, bytes: u64) -> Answer {
    current()?;
    volume::copy_now(&line(to, from, bytes))
}

fn on_stream(to: End, from: End, bytes: u64, on: CUstream) -> Answer {
    current()?;
    volume::copy_on(line(to, from, bytes), on)
}

/// `cuMemcpyHtoA`
pub fn from_host(array: CUarray, offset: usize, from: Host, bytes: u64) -> Answer {
    now(End::in_array(array, offset), (from.0, Side::Host).into(), bytes)
}

/// `cuMemcpyAtoH`
pub fn to_host(to: Host, array: CUarray, offset: usize, bytes: u64) -> Answer {
    now((to.0, Side::Host).into(), End::in_array(array, offset), bytes)
}

/// `cuMemcpyHtoAAsync`
pub fn from_host_async(
    array: CUarray,
    offset: usize,
    from: Host,
    bytes: u64,
    on: CUstream,
) -> Answer {
    on_stream(End::in_array(array, offset), (from.0, Side::Host).into(), bytes, on)
}

/// `cuMemcpyAtoHAsync`
pub fn to_host_async(to: Host, array: CUarray, offset: usize, bytes: u64, on: CUstream) -> Answer {
    on_stream((to.0, Side::Host).into(), End::in_array(array, offset), bytes, on)
}
