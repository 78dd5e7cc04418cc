//! Card numbers in a slice whose cards were chosen (`hami run --device`): they count these cards,
//! in the order in which they were chosen, as in a container that has no others.
//!
//! The driver reads `CUDA_VISIBLE_DEVICES` in cuInit and counts the cards of the machine. So it
//! must find UUIDs there. The program must not: launchers read the variable and set it to numbers,
//! and many take nothing else (vllm 13815, DeepSpeed 5278).
//!
//! So the driver's own pointer to `getenv` leads here. Only the driver calls through it, whatever
//! thread it is on, and each call finds the list that the program has at that moment. The
//! environment stays the program's.
//!
//! A driver that does not import `getenv` reads the list of variables itself. Then cuInit runs with
//! a list of ours, and variables that other threads set meanwhile are lost. It is not known that
//! NVIDIA's driver imports `getenv` in each version, so this way stays.
//!
//! After cuInit the driver must show the chosen cards. Otherwise CUDA is refused.

use std::ffi::{CStr, CString, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use driver_sys::cuda::{CUDA_SUCCESS, CUresult};
use hami_limits::same_card;
use vgpu_driver::guard::{contain, lock};
use vgpu_driver::objects;
use vgpu_driver::symbols::Library;

use crate::cards;
use crate::current::{Slice, current};

const NAME: &CStr = c"CUDA_VISIBLE_DEVICES";

type Variables = *mut *mut c_char;

unsafe extern "C" {
    static environ: AtomicPtr<*mut c_char>;
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// Calls the driver's cuInit with the numbers of the slice. The error is the reason for which CUDA
/// is refused.
pub fn in_slice(init: impl FnOnce() -> CUresult) -> Result<CUresult, &'static str> {
    let Some(chosen) = chosen() else { return Ok(init()) };
    // `|`: both are to be bound.
    let is_bound = bind(c"getenv", answer_getenv) | bind(c"secure_getenv", answer_secure_getenv);
    let result = if is_bound { init() } else { with_our_list(chosen, init) };
    if result == CUDA_SUCCESS && !is_obeyed(chosen) {
        return Err(
            "the driver shows other cards than `hami run --device` has chosen, because it does not \
             read CUDA_VISIBLE_DEVICES with getenv; set that variable before `hami run`, and leave \
             --device out",
        );
    }
    Ok(result)
}

fn chosen() -> Option<&'static [String]> {
    match current() {
        Slice::Limited(limited) => limited.chosen(),
        _ => None,
    }
}

type Getenv = unsafe extern "C" fn(*const c_char) -> *mut c_char;

/// Whether the driver calls `to` now where it calls `name`.
fn bind(name: &CStr, to: Getenv) -> bool {
    objects::rebind(Library::Cuda.soname(), name.to_bytes(), to as usize)
}

unsafe extern "C" fn answer_getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the driver's own argument.
    unsafe { answer(name, libc::getenv) }
}

unsafe extern "C" fn answer_secure_getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: as above.
    unsafe { answer(name, secure_getenv) }
}

/// # Safety
/// As `getenv`.
unsafe fn answer(name: *const c_char, getenv: Getenv) -> *mut c_char {
    // SAFETY: as the caller.
    let value = unsafe { getenv(name) };
    // SAFETY: as above.
    if unsafe { CStr::from_ptr(name) } != NAME {
        return value;
    }
    let list = contain(|| chosen().map(|chosen| list_for_driver(chosen, value)));
    list.flatten().map_or(value, |list| list.as_ptr().cast_mut())
}

/// The lists that the driver has got. They are never freed, because it may keep them.
static LISTS: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());

/// The list for the driver, if the variable of the program has this value.
fn list_for_driver(chosen: &[String], variable: *const c_char) -> &'static CStr {
    // SAFETY: null, or a C string of the C library.
    let variable = (!variable.is_null()).then(|| unsafe { CStr::from_ptr(variable) });
    let list = uuids(chosen, variable.map(CStr::to_string_lossy).as_deref());
    // It has no NUL: it is made of C strings.
    let list = CString::new(list).unwrap_or_default();
    let mut lists = lock(&LISTS);
    if let Some(known) = lists.iter().find(|known| **known == list.as_c_str()) {
        return known;
    }
    let list = Box::leak(list.into_boxed_c_str());
    lists.push(list);
    list
}

/// Whether the driver shows the cards of a list that it has got.
fn is_obeyed(chosen: &[String]) -> bool {
    // If cuInit ran before, no list exists yet, so make one.
    // SAFETY: a C string.
    list_for_driver(chosen, unsafe { secure_getenv(NAME.as_ptr()) });
    let shown = cards::uuids();
    lock(&LISTS).iter().any(|list| names(&list.to_string_lossy(), &shown))
}

/// Whether a list names these cards. The driver leaves out what follows an entry that no card has.
fn names(list: &str, shown: &[String]) -> bool {
    let entries: Vec<_> = list.split(',').collect();
    let is_start = |entry: &str, uuid: &str| {
        uuid.get(..entry.len()).is_some_and(|start| start.eq_ignore_ascii_case(entry))
    };
    shown.len() <= entries.len()
        && shown.iter().zip(entries).all(|(uuid, entry)| {
            // Older drivers show a MIG slice with the UUID of its card.
            same_card(entry, uuid) || is_start(entry, uuid) || entry.starts_with("MIG-")
        })
}

/// The lists of variables while cuInit runs.
struct Replaced {
    calls: u32,
    program: Variables,
    ours: Variables,
}

// SAFETY: the lists live for ever.
unsafe impl Send for Replaced {}

static REPLACED: Mutex<Replaced> =
    Mutex::new(Replaced { calls: 0, program: std::ptr::null_mut(), ours: std::ptr::null_mut() });

/// Calls cuInit with another list of variables. `setenv` would free the program's while other
/// threads read it.
fn with_our_list<T>(chosen: &[String], init: impl FnOnce() -> T) -> T {
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
    // SAFETY: a C string.
    let list = list_for_driver(chosen, unsafe { secure_getenv(NAME.as_ptr()) });
    let of_variable = [NAME.to_bytes(), b"="].concat();
    let text = CString::new([&of_variable, list.to_bytes()].concat()).unwrap_or_default();
    // SAFETY: the C library's list of variables, which ends with null.
    let entries = unsafe { entries(environ.load(Ordering::Acquire)) };
    let others = entries.into_iter().filter(|entry| {
        // SAFETY: a C string of the C library.
        !unsafe { CStr::from_ptr(*entry) }.to_bytes().starts_with(&of_variable)
    });
    // Other threads may read it at any time later, so it is never freed.
    let list: Vec<_> = others.chain([text.into_raw(), std::ptr::null_mut()]).collect();
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
    fn a_list_names_the_cards_up_to_an_entry_that_no_card_has() {
        let shown = ["GPU-bb", "GPU-aa"].map(String::from);
        for list in ["GPU-bb,GPU-aa", "gpu-BB,GPU-aa,GPU-cc", "bb,GPU-a", "MIG-dd,GPU-aa"] {
            assert!(names(list, &shown), "{list}");
        }
        for list in ["GPU-aa,GPU-bb", "GPU-bb", "", "GPU-bb,GPU-cc"] {
            assert!(!names(list, &shown), "{list}");
        }
        assert!(names("", &[]));
    }

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
