//! The names of the functions of both libraries; a counter's place is its name's place here.

macro_rules! names {
    ($($name:ident $parameters:tt -> $result:ty;)*) => { &[$(stringify!($name)),*] };
}

/// Every function of cuda.h.
pub const CUDA: &[&str] = driver_sys::each_cuda_fn!(names);
/// Every function of nvml.h.
pub const NVML: &[&str] = driver_sys::each_nvml_fn!(names);

/// The library that a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `libcuda.so.1`
    Cuda,
    /// `libnvidia-ml.so.1`
    Nvml,
}

impl Library {
    /// Its functions.
    pub fn symbols(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => CUDA,
            Self::Nvml => NVML,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Nvml => "nvml",
        }
    }
}
