//! User objects, which graphs keep alive by counted references, and their destructors.
//!
//! A destructor is the program's and may take long, so it runs after the table of graphs is
//! unlocked: every function that may end an object returns the [`Destructors`] to run.

use super::with;
use crate::Answer;
use crate::boundary::{Host, Out};
use crate::process::{driver, handle};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::collections::BTreeMap;

/// A user object.
struct Object {
    destroy: unsafe extern "C" fn(*mut c_void),
    pointer: u64,
    references: u64,
}

/// All user objects, by handle.
#[derive(Default)]
pub struct Objects(BTreeMap<usize, Object>);

/// Destructors that are due.
#[derive(Default)]
#[must_use]
pub struct Destructors(Vec<(unsafe extern "C" fn(*mut c_void), u64)>);

impl Destructors {
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Runs them. The table of graphs must not be locked.
    pub fn run(self) {
        for (destroy, pointer) in self.0 {
            // SAFETY: the program's own function and argument.
            unsafe { destroy(pointer as *mut c_void) };
        }
    }
}

impl Objects {
    fn retain(&mut self, object: usize, count: u32) -> Answer {
        let found = self.0.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        found.references += u64::from(count);
        Ok(())
    }

    fn release(&mut self, object: usize, count: u32) -> Answer<Destructors> {
        let found = self.0.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let left = found.references.checked_sub(u64::from(count));
        found.references = left.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut due = Destructors::default();
        if found.references == 0 {
            due.0.push((found.destroy, found.pointer));
            self.0.remove(&object);
        }
        Ok(due)
    }

    /// Adds the references of one more owner.
    pub fn retain_all(&mut self, objects: &BTreeMap<usize, u32>) {
        for (object, count) in objects {
            // The objects of an owner exist.
            let _ = self.retain(*object, *count);
        }
    }

    /// Releases the references of an owner that ends.
    pub fn release_all(&mut self, objects: &BTreeMap<usize, u32>) -> Destructors {
        let mut due = Destructors::default();
        for (object, count) in objects {
            if let Ok(more) = self.release(*object, *count) {
                due.extend(more);
            }
        }
        due
    }
}

fn check_count(count: u32) -> Answer {
    if count == 0 || i32::try_from(count).is_err() { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// `cuUserObjectCreate`
pub fn create(
    object: Out<CUuserObject>,
    pointer: Host,
    destroy: CUhostFn,
    references: u32,
    flags: u32,
) -> Answer {
    driver()?;
    let destroy = destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    check_count(references)?;
    if object.is_null() || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    with(|graphs| {
        let made = graphs.new_handle();
        let references = u64::from(references);
        graphs.objects.0.insert(made, Object { destroy, pointer: pointer.0, references });
        object.put(handle(made))
    })
}

/// `cuUserObjectRetain`
pub fn retain(object: CUuserObject, count: u32) -> Answer {
    driver()?;
    check_count(count)?;
    with(|graphs| graphs.objects.retain(object as usize, count))
}

/// `cuUserObjectRelease`
pub fn release(object: CUuserObject, count: u32) -> Answer {
    driver()?;
    check_count(count)?;
    with(|graphs| graphs.objects.release(object as usize, count))?.run();
    Ok(())
}

/// `cuGraphRetainUserObject`: with new references, or with the caller's.
pub fn retain_for_graph(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) -> Answer {
    driver()?;
    check_count(count)?;
    if flags & !CU_GRAPH_USER_OBJECT_MOVE != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    with(|graphs| {
        graphs.graph(graph as usize)?;
        if flags & CU_GRAPH_USER_OBJECT_MOVE == 0 {
            graphs.objects.retain(object as usize, count)?;
        } else if !graphs.objects.0.contains_key(&(object as usize)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        *graphs.graph_mut(graph as usize)?.objects.entry(object as usize).or_default() += count;
        Ok(())
    })
}

/// `cuGraphReleaseUserObject`
pub fn release_from_graph(graph: CUgraph, object: CUuserObject, count: u32) -> Answer {
    driver()?;
    check_count(count)?;
    let due = with(|graphs| {
        let held = &mut graphs.graph_mut(graph as usize)?.objects;
        let references = held.get_mut(&(object as usize)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        *references = references.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        held.retain(|_, references| *references > 0);
        graphs.objects.release(object as usize, count)
    })?;
    due.run();
    Ok(())
}
