//! Where the driver keeps memory, as the arguments of its calls state it.

use driver_sys::cuda::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE,
    CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, CUdevice, CUmemAllocationType, CUmemLocation,
};

use crate::context;

/// The device on which memory of this type and location counts; `None` for memory of the host.
/// Managed memory counts for the current device, because any kernel can bring it there.
pub fn device_of(location: &CUmemLocation, kind: CUmemAllocationType) -> Option<CUdevice> {
    // SAFETY: these types of location say which field of the union the program has set.
    unsafe {
        match location.r#type {
            CU_MEM_LOCATION_TYPE_DEVICE => Some(location.unnamed1.id),
            CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN => {
                Some(location.unnamed1.localized.deviceId.into())
            }
            _ if kind == CU_MEM_ALLOCATION_TYPE_MANAGED => {
                context::current().map(|(device, _)| device)
            }
            _ => None,
        }
    }
}
