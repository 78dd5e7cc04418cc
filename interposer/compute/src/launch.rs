//! One launch: the arguments that the limiter needs.

/// `CU_STREAM_PER_THREAD`: the calling thread's own default stream.
const PER_THREAD: usize = 2;

/// A launch of a kernel or of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The function or executable graph.
    pub function: usize,
    /// The grid; all 0 for a graph.
    pub grid: [u32; 3],
    /// The stream, as the program wrote it.
    pub stream: usize,
    /// Whether the stream is the calling thread's own default stream.
    pub is_threads_own: bool,
}

impl Launch {
    /// Whether a stream is the calling thread's own default stream. `per_thread` is true for
    /// functions in which NULL means that stream.
    pub fn is_threads_own(stream: usize, per_thread: bool) -> bool {
        stream == PER_THREAD || per_thread && stream == 0
    }

    /// The key under which its cost is remembered.
    pub fn key(&self) -> u64 {
        Self::key_of(self.function, self.grid)
    }

    /// The key of a function or executable graph with a grid.
    pub fn key_of(function: usize, grid: [u32; 3]) -> u64 {
        let blocks = grid.iter().fold(1_u64, |all, size| all.wrapping_mul(u64::from(*size)));
        // Multiplied by an odd constant (2^64 over the golden ratio) the two do not cancel out.
        (function as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ blocks
    }
}
