// build: -shared -fPIC
/* A plug-in that is linked with the driver. */
#include "trace.h"

void allocate(void)
{
    CUcontext context = NULL;
    CUdeviceptr memory = UNTOUCHED;
    TRACE(cuInit(0));
    TRACE(cuDevicePrimaryCtxRetain(&context, 0));
    TRACE(cuCtxSetCurrent(context));
    TRACE(cuMemAlloc_v2(&memory, 512 * MiB), "pointer=%s", POINTER(memory));
    TRACE(cuMemAlloc_v2(&memory, 1024 * MiB), "pointer=%s", POINTER(memory));
}
