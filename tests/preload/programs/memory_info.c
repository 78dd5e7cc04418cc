// build: -lcuda
/* Calls every driver function that returns the memory of a device, for all devices. The 32-bit forms
 * return what fits into 32 bits. */
#include "trace.h"

int main(void)
{
    int count = 0;
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++) {
        CUcontext context;
        size_t free = UNTOUCHED, total = UNTOUCHED, device_total = UNTOUCHED;
        unsigned old_free = (unsigned)UNTOUCHED, old_total = (unsigned)UNTOUCHED;
        unsigned old_device_total = (unsigned)UNTOUCHED;
        MUST(cuDevicePrimaryCtxRetain(&context, device));
        MUST(cuCtxSetCurrent(context));
        TRACE(cuMemGetInfo_v2(&free, &total), "device=%d free=%s total=%s", device, bytes(free),
              bytes(total));
        TRACE(cuMemGetInfo(&old_free, &old_total), "device=%d free=%s total=%s", device,
              bytes(old_free), bytes(old_total));
        TRACE(cuDeviceTotalMem_v2(&device_total, device), "device=%d total=%s", device,
              bytes(device_total));
        TRACE(cuDeviceTotalMem(&old_device_total, device), "device=%d total=%s", device,
              bytes(old_device_total));
        MUST(cuDevicePrimaryCtxRelease_v2(device));
    }
    return 0;
}
