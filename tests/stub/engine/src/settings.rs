//! The stub's environment variables. No other module reads them.

use std::path::PathBuf;

/// The settings from the environment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `STUB_GPU_SOCKET`: the server's socket; without it the engine is in this process.
    pub socket: Option<PathBuf>,
    /// `STUB_GPU_PROFILE`: the in-process engine's cards, such as `t4,a100@12020`: profiles by name
    /// or path, `@` and a CUDA version for a driver of that age. Default: one `a100`.
    pub cards: String,
    /// `STUB_GPU_GROUP`: the group that this process is summed in. Default: the empty name.
    pub group: String,
    /// `STUB_GPU_KERNELS`: `name=us,*=us`, durations for the in-process engine. Default: 0.
    pub kernels: String,
    /// `STUB_GPU_COUNT=1`: count calls and kernels in the in-process engine too.
    pub count: bool,
    /// `STUB_GPU_CLOCK=virtual`: time moves only when this process waits for it.
    pub has_virtual_clock: bool,
    /// `CUDA_VISIBLE_DEVICES`, as the real driver reads it.
    pub visible_devices: Option<String>,
}

impl Settings {
    /// Reads the environment.
    pub fn from_environment() -> Self {
        let read = |name| std::env::var(name).ok();
        Self {
            socket: std::env::var_os("STUB_GPU_SOCKET").map(PathBuf::from),
            cards: read("STUB_GPU_PROFILE").unwrap_or_else(|| "a100".into()),
            group: read("STUB_GPU_GROUP").unwrap_or_default(),
            kernels: read("STUB_GPU_KERNELS").unwrap_or_default(),
            count: read("STUB_GPU_COUNT").is_some_and(|value| value == "1"),
            has_virtual_clock: read("STUB_GPU_CLOCK").is_some_and(|value| value == "virtual"),
            visible_devices: read("CUDA_VISIBLE_DEVICES"),
        }
    }
}
