// build:
/* A weak reference to the driver in a program that runs without one. A preloaded library that exports
 * the symbol cannot keep the reference empty, so the call must return an error. */
#include "trace.h"

#pragma weak cuInit
#pragma weak cuMemAlloc_v2
#pragma weak cuMemGetInfo_v2

int main(void)
{
    CUdeviceptr allocation = UNTOUCHED;
    size_t free = UNTOUCHED, total = UNTOUCHED;
    if (cuInit)
        TRACE(cuInit(0));
    if (cuMemAlloc_v2)
        TRACE(cuMemAlloc_v2(&allocation, 1), "pointer=%s", pointer(allocation));
    if (cuMemGetInfo_v2)
        TRACE(cuMemGetInfo_v2(&free, &total), "free=%s total=%s", bytes(free), bytes(total));
    return 0;
}
