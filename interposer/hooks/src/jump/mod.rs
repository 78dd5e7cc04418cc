//! The few instructions that cannot be written in Rust: jumps that leave the program's registers,
//! stack and return address unchanged. The function at the target cannot notice the library.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{Frame, dlsym_entry, entry_jump, launch_jump};

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Frame, dlsym_entry, entry_jump, launch_jump};

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("the wrappers of launches and of dlsym are written for x86_64 and aarch64");
