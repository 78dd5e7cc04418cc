// build: -lcuda
/* A primary context and its memory exist until the last release. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUcontext context = NULL;
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED, c = UNTOUCHED;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    TRACE(cuDevicePrimaryCtxRelease_v2(0));
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    TRACE(cuDevicePrimaryCtxRelease_v2(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    TRACE(cuMemAlloc_v2(&c, asked), "granted=%d", c != UNTOUCHED);
    return 0;
}
