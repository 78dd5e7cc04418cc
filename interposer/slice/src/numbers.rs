//! Card numbers in a slice whose cards were chosen (`hami run --device`): they count these cards, in
//! the order in which they were chosen, as in a container that has no others.
//!
//! The driver reads `CUDA_VISIBLE_DEVICES` in cuInit and counts the cards of the machine. So it finds
//! UUIDs there while cuInit runs. The program does not: launchers read the variable and set it to
//! numbers, and many take nothing else (vllm 13815, DeepSpeed 5278).
//!
//! `setenv` would free the list of variables while other threads read it. So the driver gets a list
//! of ours, and the program's comes back afterwards.

use std::ffi::{CStr, CString, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use vgpu_driver::guard::lock;

use crate::current::{Slice, current};

const VARIABLE: &[u8] = b"CUDA_VISIBLE_DEVICES=";

type Variables = *mut *mut c_char;

unsafe extern "C" {
    static environ: AtomicPtr<*mut c_char>;
}

/// The lists while cuInit runs.
struct Replaced {
    calls: u32,
    program: Variables,
    ours: Variables,
}

// SAFETY: the lists live for ever.
unsafe impl Send for Replaced {}

static REPLACED: Mutex<Replaced> =
    Mutex::new(Replaced { calls: 0, program: std::ptr::null_mut(), ours: std::ptr::null_mut() });

/// Calls the driver's cuInit with the numbers of the slice.
pub fn in_slice<T>(init: impl FnOnce() -> T) -> T {
    let chosen = match current() {
        Slice::Limited(limited) => limited.chosen(),
        _ => None,
    };
    let Some(chosen) = chosen else { return init() };
    replace(chosen);
    let result = init();
    restore();
    result
}

fn replace(chosen: &[String]) {
    let mut replaced = lock(&REPLACED);
    replaced.calls += 1;
    // Threads may call cuInit at the same time, and tools that it loads may call it again.
    if replaced.calls > 1 {
        return;
    }
    // SAFETY: the C library's list of variables, which ends with null.
    let entries = unsafe { entries(environ.load(Ordering::Acquire)) };
    // SAFETY: C strings of the C library.
    let is_ours =
        |entry: &*mut c_char| unsafe { CStr::from_ptr(*entry) }.to_bytes().starts_with(VARIABLE);
    let list = entries.iter().find(|entry| is_ours(entry)).map(|entry| {
        // SAFETY: as above.
        let bytes = unsafe { CStr::from_ptr(*entry) }.to_bytes();
        String::from_utf8_lossy(bytes.get(VARIABLE.len()..).unwrap_or_default()).into_owned()
    });
    let mut text = VARIABLE.to_vec();
    text.extend(uuids(chosen, list.as_deref()).bytes());
    // It has no NUL: it is made of C strings.
    let text = CString::new(text).unwrap_or_default().into_raw();
    let others = entries.iter().copied().filter(|entry| !is_ours(entry));
    // Other threads may read it at any time later, so it is never freed.
    let list: Vec<_> = others.chain([text, std::ptr::null_mut()]).collect();
    replaced.ours = Vec::leak(list).as_mut_ptr();
    // SAFETY: the C library's variable; a complete list.
    replaced.program = unsafe { environ.swap(replaced.ours, Ordering::AcqRel) };
}

fn restore() {
    let mut replaced = lock(&REPLACED);
    replaced.calls -= 1;
    if replaced.calls == 0 {
        let (ours, program) = (replaced.ours, replaced.program);
        // If the program has set a variable meanwhile, the C library has a list of its own.
        // SAFETY: the C library's variable; the list that was there.
        let _ =
            unsafe { environ.compare_exchange(ours, program, Ordering::AcqRel, Ordering::Relaxed) };
    }
}

/// The variables of a list.
///
/// # Safety
/// The list ends with null.
unsafe fn entries(mut list: Variables) -> Vec<*mut c_char> {
    let mut entries = Vec::new();
    // SAFETY: not behind its end.
    while !list.is_null() && unsafe { !(*list).is_null() } {
        // SAFETY: as above.
        unsafe {
            entries.push(*list);
            list = list.add(1);
        }
    }
    entries
}

/// The list of the program with UUIDs instead of numbers. Like the driver's, it ends at the first
/// number that no card has.
fn uuids(chosen: &[String], list: Option<&str>) -> String {
    let Some(list) = list else { return chosen.join(",") };
    let named = list.split(',').map(str::trim).map_while(|entry| match entry.parse::<usize>() {
        Ok(number) => chosen.get(number).map(String::as_str),
        Err(_) => Some(entry),
    });
    named.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_the_chosen_cards() {
        let chosen = ["GPU-b", "GPU-a"].map(String::from);
        for (list, expected) in [
            (None, "GPU-b,GPU-a"),
            (Some("0"), "GPU-b"),
            (Some("1, 0"), "GPU-a,GPU-b"),
            (Some("GPU-a,0"), "GPU-a,GPU-b"),
            (Some("0,2,1"), "GPU-b"),
            (Some(""), ""),
            (Some("-1,0"), "-1,GPU-b"),
        ] {
            assert_eq!(uuids(&chosen, list), expected, "{list:?}");
        }
    }
}
