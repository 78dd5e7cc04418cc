// build: -lcuda
/* For every line "MIB ORDINAL" on standard input, allocates so much on that device, prints the result,
 * and frees it again. */
#include "trace.h"

int main(void)
{
    size_t size;
    int ordinal;
    MUST(cuInit(0));
    SAY("ready");
    while (scanf("%zu %d", &size, &ordinal) == 2) {
        CUcontext context;
        CUdeviceptr allocation = UNTOUCHED;
        MUST(cuDevicePrimaryCtxRetain(&context, ordinal));
        MUST(cuCtxSetCurrent(context));
        CUresult result = cuMemAlloc_v2(&allocation, size * MiB);
        if (result == CUDA_SUCCESS)
            MUST(cuMemFree_v2(allocation));
        SAY("%d", result);
        MUST(cuDevicePrimaryCtxRelease_v2(ordinal));
    }
    return 0;
}
