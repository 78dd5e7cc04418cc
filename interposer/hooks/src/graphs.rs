//! Executable graphs, which may allocate memory when they are uploaded or launched.
//! [`vgpu_slice::graphs`] decides what is charged.

use std::ffi::c_char;

use driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_SUCCESS, CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
};
use vgpu_compute::admission;
use vgpu_driver::guard::guard;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::graphs;
use vgpu_slice::pools::graph_memory;

use crate::form::Form;

around! {
    instantiate_v1(
        exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, size: usize
    ) -> Outcome = cuGraphInstantiate, |call| instantiate(exec, graph, call);
    instantiate_v2(
        exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, size: usize
    ) -> Outcome = cuGraphInstantiate_v2, |call| instantiate(exec, graph, call);
    instantiate_with_flags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Outcome
        = cuGraphInstantiateWithFlags, |call| instantiate(exec, graph, call);
    instantiate_with_params(
        exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS
    ) -> Outcome = cuGraphInstantiateWithParams,
        |call| instantiate_and_upload(exec, graph, parameters, Form::Plain, call);
    instantiate_with_params_ptsz(
        exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS
    ) -> Outcome = cuGraphInstantiateWithParams_ptsz,
        |call| instantiate_and_upload(exec, graph, parameters, Form::PerThread, call);
    destroy(exec: CUgraphExec) -> CUresult
        = cuGraphExecDestroy, |call| graphs::destroy(exec as u64, call);
    trim(device: CUdevice) -> CUresult = cuDeviceGraphMemTrim, |call| graph_memory::trim(device, call);
    upload(exec: CUgraphExec, stream: CUstream) -> Outcome
        = cuGraphUpload, |call| upload_in(exec, stream, Form::Plain, call);
    upload_ptsz(exec: CUgraphExec, stream: CUstream) -> Outcome
        = cuGraphUpload_ptsz, |call| upload_in(exec, stream, Form::PerThread, call);
}

fn instantiate(exec: *mut CUgraphExec, graph: CUgraph, call: impl FnOnce() -> CUresult) -> Outcome {
    let needs = graphs::needs_of(graph)?;
    check(call())?;
    // SAFETY: the driver has just written it.
    remember(unsafe { *exec }, &needs)
}

fn remember(exec: CUgraphExec, needs: &graphs::Needs) -> Outcome {
    graphs::instantiated(exec as u64, *needs).map_err(|_full| {
        // SAFETY: the driver has just created it, and the program never gets it.
        unsafe { real::cuGraphExecDestroy(exec) };
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

fn instantiate_and_upload(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    form: Form,
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    let upload = u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    // SAFETY: the program's own argument.
    let stream = unsafe { parameters.as_ref() }
        .filter(|parameters| parameters.flags & upload != 0)
        .map(|parameters| parameters.hUploadStream);
    let Some(stream) = stream else { return instantiate(exec, graph, call) };
    let mut needs = graphs::needs_of(graph)?;
    graphs::reserve(&mut needs, &|| form.wait(stream))?;
    let outcome = check(call());
    graphs::settle(&mut needs, outcome.is_ok());
    outcome?;
    // SAFETY: the driver has just written it.
    remember(unsafe { *exec }, &needs)
}

fn upload_in(
    exec: CUgraphExec,
    stream: CUstream,
    form: Form,
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    let is_charged = graphs::before_launch(exec as u64, &|| form.wait(stream))?;
    let outcome = check(call());
    if is_charged {
        guard(|| graphs::after_launch(exec as u64, outcome.is_ok()));
    }
    outcome
}

/// Charges what a launch of an executable graph may take. Returns whether the launch must go
/// through [`then_settle`].
pub(crate) fn before_launch(exec: usize, stream: usize, form: Form) -> Outcome<bool> {
    let stream = stream as CUstream;
    if form.is_capturing(stream) {
        return Ok(false);
    }
    graphs::before_launch(exec as u64, &|| form.wait(stream))
}

/// The address of a function that launches a graph, and corrects the charge afterwards.
pub(crate) fn then_settle(form: Form, records: bool) -> usize {
    type Launch = unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult;
    let function: Launch = match (form, records) {
        (Form::Plain, false) => launch::<false, false>,
        (Form::Plain, true) => launch::<false, true>,
        (Form::PerThread, false) => launch::<true, false>,
        (Form::PerThread, true) => launch::<true, true>,
    };
    function as usize
}

unsafe extern "C" fn launch<const PER_THREAD: bool, const RECORDS: bool>(
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let result = unsafe {
        if PER_THREAD {
            real::cuGraphLaunch_ptsz(exec, stream)
        } else {
            real::cuGraphLaunch(exec, stream)
        }
    };
    guard(|| {
        graphs::after_launch(exec as u64, result == CUDA_SUCCESS);
        if RECORDS {
            admission::launched();
        }
    });
    result
}

/// The address of a function that refuses a launch.
pub(crate) fn refusal() -> usize {
    extern "C" fn refuse(_: CUgraphExec, _: CUstream) -> CUresult {
        CUDA_ERROR_OUT_OF_MEMORY
    }
    refuse as *const () as usize
}
