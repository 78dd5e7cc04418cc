//! NVIDIA's C interface as data: types, constants and one signature per exported symbol.
//!
//! The interposer and the stub driver must agree with the real driver, and with each other, on every
//! signature and layout, so neither writes one by hand: both take them from here, and everything
//! here but this file is generated from NVIDIA's headers (`make gen`).
//!
//! - [`cuda`] and [`nvml`] hold the types and constants, and assert every record's layout as the C
//!   compiler has it;
//! - `cuda_fn!(name, then rest)` expands to `then! { name (parameters) -> type; rest }`, so a macro
//!   of the caller can turn a bare symbol name into a wrapper, a function pointer or a row;
//! - `each_cuda_fn!(then)` hands all signatures to `then!` at once (`each_nvml_fn!` likewise);
//! - [`versions::VERSIONS`] says which symbol `cuGetProcAddress` hands out for which CUDA version.
#![no_std]

mod forms;

/// cuda.h.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
#[allow(clippy::pedantic)]
#[rustfmt::skip]
pub mod cuda;

/// nvml.h.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
#[allow(clippy::pedantic)]
#[rustfmt::skip]
pub mod nvml;

/// cudaTypedefs.h.
#[rustfmt::skip]
pub mod versions;

/// The exported symbol that a program built with this CUDA version means by `name`: the newest form
/// that is not newer. A form for the thread's own default stream is preferred to a plain one of the
/// same age. `None` if the header has no such name, or only newer forms.
pub fn form_of(name: &str, version: i32, per_thread: bool) -> Option<&'static str> {
    forms::of(name)
        .filter(|form| form.version <= version && (per_thread || !form.per_thread))
        .max_by_key(|form| (form.version, form.per_thread))
        .and_then(forms::Form::symbol)
}

#[cfg(test)]
mod tests {
    use super::form_of;

    #[test]
    fn a_name_means_what_it_meant_when_the_program_was_built() {
        assert_eq!(form_of("cuMemAlloc", 2000, false), Some("cuMemAlloc"));
        assert_eq!(form_of("cuMemAlloc", 13050, true), Some("cuMemAlloc_v2"));
        assert_eq!(form_of("cuCtxCreate", 11039, false), Some("cuCtxCreate_v2"));
        assert_eq!(form_of("cuLaunchKernel", 12000, true), Some("cuLaunchKernel_ptsz"));
        assert_eq!(form_of("cuLaunchKernel", 6050, true), Some("cuLaunchKernel"));
        assert_eq!(form_of("cuLaunchKernel", 3020, false), None);
        assert_eq!(form_of("cuNoSuchThing", 13050, false), None);
    }
}
