//! User objects, which graphs and executable graphs keep alive.
//!
//! The destructor is the program's and may take long, so it does not run while the table of graphs
//! is locked: see [`super::with`].

use super::with;
use crate::Answer;
use crate::boundary::{Host, Out};
use crate::process::handle;
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A user object. The last reference calls the destructor.
pub struct Object {
    destroy: unsafe extern "C" fn(*mut c_void),
    pointer: u64,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the program's own function and argument.
        unsafe { (self.destroy)(self.pointer as *mut c_void) };
    }
}

/// The objects of one owner, by handle, with the number of its references.
pub type Objects = BTreeMap<usize, (Arc<Object>, u32)>;

/// Removes references; returns the object if those were the last ones of this owner.
fn release(objects: &mut Objects, object: usize, count: u32) -> Answer<Option<Arc<Object>>> {
    let (_, references) = objects.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    *references = references.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let is_last = *references == 0;
    Ok(if is_last { objects.remove(&object).map(|(object, _)| object) } else { None })
}

/// `cuUserObjectCreate`
pub fn create(
    object: Out<CUuserObject>,
    pointer: Host,
    destroy: CUhostFn,
    references: u32,
    flags: u32,
) -> Answer {
    with(|graphs| {
        let destroy = destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if object.is_null() || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let new = Arc::new(Object { destroy, pointer: pointer.0 });
        let made = graphs.new_handle();
        graphs.objects.insert(made, (new, references));
        object.put(handle(made))
    })
}

/// `cuGraphRetainUserObject`: with new references, or with the program's.
pub fn retain_for_graph(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) -> Answer {
    with(|graphs| {
        graphs.graph(graph as usize)?;
        if count == 0 || flags & !CU_GRAPH_USER_OBJECT_MOVE != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let found = graphs.objects.get(&(object as usize)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let kept = Arc::clone(&found.0);
        if flags == CU_GRAPH_USER_OBJECT_MOVE {
            release(&mut graphs.objects, object as usize, count)?;
        }
        let objects = &mut graphs.graph_mut(graph as usize)?.objects;
        objects.entry(object as usize).or_insert((kept, 0)).1 += count;
        Ok(())
    })
}

/// `cuGraphReleaseUserObject`
pub fn release_from_graph(graph: CUgraph, object: CUuserObject, count: u32) -> Answer {
    with(|graphs| {
        let objects = &mut graphs.graph_mut(graph as usize)?.objects;
        release(objects, object as usize, count)
    })?;
    Ok(())
}
