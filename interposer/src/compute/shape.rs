//! What a launch launches, and where: the few of its arguments that the limiter must know.

use driver_sys::cuda::{CUDA_LAUNCH_PARAMS, CUlaunchConfig};

use crate::arch::Frame;

/// How the arguments of a launch function lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Function, grid, block, shared bytes, stream.
    Kernel,
    /// The same; the default stream is the thread's own.
    KernelOfThread,
    /// A configuration with grid and stream, function.
    Config,
    /// The same; the default stream is the thread's own.
    ConfigOfThread,
    /// An executable graph, stream.
    Graph,
    /// The same; the default stream is the thread's own.
    GraphOfThread,
    /// Function and, for one of them, a grid of two; the default stream.
    Old,
    /// Function, a grid of two, stream.
    OldAsync,
    /// A list of kernels, one per device.
    Several,
}

/// `CU_STREAM_PER_THREAD`: the calling thread's own default stream.
const PER_THREAD: usize = 2;

/// More devices than one cooperative launch can have.
const MAX_SEVERAL: usize = 64;

/// One launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    /// The function or executable graph.
    pub(super) function: usize,
    pub(super) grid: [u32; 3],
    /// As the program wrote it.
    pub(super) stream: usize,
    /// Whether the stream is the calling thread's own default one.
    pub(super) is_threads_own: bool,
}

impl Launch {
    /// What a wrapper was called with; `None` for a configuration that is not there, which the
    /// driver will refuse.
    pub(super) fn read(shape: Shape, frame: &Frame) -> Option<Self> {
        let word = |place| frame.argument(place);
        let number = |place| frame.argument(place) as u32;
        let per_thread =
            matches!(shape, Shape::KernelOfThread | Shape::ConfigOfThread | Shape::GraphOfThread);
        let (function, grid, stream) = match shape {
            Shape::Kernel | Shape::KernelOfThread => {
                (word(0), [number(1), number(2), number(3)], word(8))
            }
            Shape::Config | Shape::ConfigOfThread => {
                // SAFETY: the program's own argument, which the driver is about to read as well.
                let config = unsafe { (word(0) as *const CUlaunchConfig).as_ref() }?;
                let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
                (word(1), grid, config.hStream as usize)
            }
            Shape::Graph | Shape::GraphOfThread => (word(0), [0; 3], word(1)),
            Shape::Old => (word(0), [0; 3], 0),
            Shape::OldAsync => (word(0), [number(1), number(2), 1], word(3)),
            Shape::Several => return None,
        };
        let is_threads_own = Self::is_threads_own(stream, per_thread);
        Some(Self { function, grid, stream, is_threads_own })
    }

    /// Whether a stream is the calling thread's own default one, where NULL may mean it.
    pub(super) fn is_threads_own(stream: usize, per_thread: bool) -> bool {
        stream == PER_THREAD || per_thread && stream == 0
    }

    /// The kernels of a launch on several devices; the driver reads the list as well.
    pub(super) fn read_each(frame: &Frame) -> impl Iterator<Item = Self> {
        let list = frame.argument(0) as *const CUDA_LAUNCH_PARAMS;
        let count = if list.is_null() { 0 } else { frame.argument(1) as u32 as usize };
        (0..count.min(MAX_SEVERAL)).map(move |place| {
            // SAFETY: the program's own list of so many.
            let one = unsafe { &*list.add(place) };
            Self {
                function: one.function as usize,
                grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
                stream: one.hStream as usize,
                is_threads_own: false,
            }
        })
    }

    /// What its cost is remembered by.
    pub(super) fn key(&self) -> u64 {
        Self::key_of(self.function, self.grid)
    }

    /// The same, of a function or executable graph.
    pub(super) fn key_of(function: usize, grid: [u32; 3]) -> u64 {
        let blocks = grid.iter().fold(1_u64, |all, size| all.wrapping_mul(u64::from(*size)));
        // Multiplied by an odd constant (2^64 over the golden ratio) the two do not cancel out.
        (function as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ blocks
    }
}
