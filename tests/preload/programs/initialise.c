// build: -lcuda
/* Whether CUDA is available, and the results of calls after a refused cuInit. */
#include "trace.h"

int main(void)
{
    int count = -1;
    CUdevice device = -1;
    size_t total = UNTOUCHED;
    TRACE(cuInit(0));
    TRACE(cuDeviceGetCount(&count), "count=%d", count);
    TRACE(cuDeviceGet(&device, 0), "device=%d", device);
    TRACE(cuDeviceTotalMem_v2(&total, 0), "total=%s", bytes(total));
    TRACE(cuInit(0));
    return 0;
}
