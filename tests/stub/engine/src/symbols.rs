//! The names of the functions of both libraries. A name's position here is its symbol's number, and
//! the index of its counter.

use driver_sys::versions::VERSIONS;
use std::collections::BTreeMap;

macro_rules! names {
    ($($name:ident $parameters:tt -> $result:ty;)*) => { &[$(stringify!($name)),*] };
}

/// The functions that a driver exports beside those of cuda.h: the profiler's, and those of
/// cudaGL.h, cudaEGL.h and cudaVDPAU.h, which share memory with graphics. Programs that look up a
/// fixed list of names fail when one is missing.
#[macro_export]
macro_rules! each_interop_fn {
    ($then:ident) => {
        $then! {
            cuProfilerInitialize cuProfilerStart cuProfilerStop
            cuGLInit cuGLCtxCreate cuGLCtxCreate_v2 cuGLGetDevices cuGLGetDevices_v2 cuGLRegisterBufferObject
            cuGLUnregisterBufferObject cuGLSetBufferObjectMapFlags cuGLMapBufferObject cuGLMapBufferObject_v2
            cuGLMapBufferObject_v2_ptds cuGLMapBufferObjectAsync cuGLMapBufferObjectAsync_v2
            cuGLMapBufferObjectAsync_v2_ptsz cuGLUnmapBufferObject cuGLUnmapBufferObjectAsync
            cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage
            cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerDisconnect
            cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect
            cuEGLStreamProducerDisconnect cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame
            cuEventCreateFromEGLSync cuGraphicsEGLRegisterImage cuGraphicsResourceGetMappedEglFrame
            cuVDPAUGetDevice cuVDPAUCtxCreate cuVDPAUCtxCreate_v2 cuGraphicsVDPAURegisterOutputSurface
            cuGraphicsVDPAURegisterVideoSurface
        }
    };
}

macro_rules! plain_names {
    ($($name:ident)*) => { &[$(stringify!($name)),*] };
}

/// The names of these functions.
pub const INTEROP: &[&str] = each_interop_fn!(plain_names);

/// The functions that the stub's driver exports for tests and for its own NVML.
pub const STUB: &[&str] = &["stub_arrive", "stub_card_usage", "stub_ledger_json"];

/// CUDA version of the headers.
pub const NEWEST: i32 = 13050;

/// The exports of a driver of this CUDA version: the symbols that existed then, and those whose age
/// the headers do not tell.
pub fn exports(version: i32) -> impl Iterator<Item = &'static str> {
    let mut since = BTreeMap::new();
    for (_, version, _, symbol) in VERSIONS {
        let oldest = since.entry(*symbol).or_insert(*version);
        *oldest = (*version).min(*oldest);
    }
    let all = CUDA.iter().chain(INTEROP).chain(STUB).copied();
    all.filter(move |symbol| since.get(symbol).is_none_or(|since| *since <= version))
}

/// Every function of cuda.h.
pub const CUDA: &[&str] = driver_sys::each_cuda_fn!(names);
/// Every function of nvml.h.
pub const NVML: &[&str] = driver_sys::each_nvml_fn!(names);

/// The library that a client uses.
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
