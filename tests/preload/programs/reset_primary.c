// build: -lcuda
/* cuDevicePrimaryCtxReset, which cudaDeviceReset calls, frees all memory of the context. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUcontext context = NULL;
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    TRACE(cuDevicePrimaryCtxReset_v2(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    return 0;
}
