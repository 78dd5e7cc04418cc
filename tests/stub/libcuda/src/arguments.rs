//! The engine's argument wrappers, with this library's word for a NULL that must not be.

use driver_sys::cuda::CUDA_ERROR_INVALID_VALUE as NULL;
use stub_engine::arguments;
pub use stub_engine::arguments::{FromC, Host};

pub type Out<T> = arguments::Out<T, NULL>;
pub type OutWide = arguments::OutWide<NULL>;
pub type In<T> = arguments::In<T, NULL>;
pub type Text = arguments::Text<NULL>;
