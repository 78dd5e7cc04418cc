// build: -lcuda
/* Sizes and pointers at the edge of what the driver accepts. */
#include "trace.h"

int main(void)
{
    CUdeviceptr a = UNTOUCHED;
    use_device(0);
    TRACE(cuMemAlloc_v2(&a, 0), "pointer=%s", pointer(a));
    TRACE(cuMemAlloc_v2(NULL, MiB));
    TRACE(cuMemAlloc_v2(NULL, 0));
    TRACE(cuMemFree_v2(0));
    TRACE(cuMemFree_v2(0xdead000));
    TRACE(cuMemFree_v2((CUdeviceptr)&a));
    TRACE(cuMemAlloc_v2(&a, 1), "pointer=%s", pointer(a));
    TRACE(cuMemFree_v2(a + 1));
    TRACE(cuMemFree_v2(a));
    TRACE(cuMemFree_v2(a));
    TRACE(cuCtxDestroy_v2(NULL));
    TRACE(cuDevicePrimaryCtxRelease_v2(-1));
    TRACE(cuDevicePrimaryCtxRelease_v2(999));
    TRACE(cuDevicePrimaryCtxReset_v2(999));
    TRACE(cuDeviceTotalMem_v2(NULL, 0));
    TRACE(cuDeviceTotalMem_v2(&(size_t){0}, -1));
    TRACE(cuDeviceTotalMem_v2(&(size_t){0}, 999));
    return 0;
}
