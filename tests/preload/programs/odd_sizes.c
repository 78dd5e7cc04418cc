// build: -lcuda
/* Sizes that no card has: the driver refuses them as out of memory, whatever the limit is. */
#include "trace.h"

int main(void)
{
    CUdeviceptr a = UNTOUCHED;
    use_device(0);
    TRACE(cuMemAlloc_v2(&a, (size_t)-1), "pointer=%s", pointer(a));
    TRACE(cuMemAlloc_v2(&a, (size_t)1 << 63), "pointer=%s", pointer(a));
    TRACE(cuMemAlloc_v2(&a, (size_t)1 << 50), "pointer=%s", pointer(a));
    TRACE(cuMemAlloc_v2(&a, (size_t)-511), "pointer=%s", pointer(a));
    return 0;
}
