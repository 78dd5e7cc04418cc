// build: -lcuda
/* Destroying a context frees its memory: the next context can allocate argv[1] MiB again. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    MUST(cuInit(0));
    for (int round = 0; round < 3; round++) {
        CUcontext context = NULL;
        CUdeviceptr allocation = UNTOUCHED;
        TRACE(cuCtxCreate_v2(&context, 0, 0), "context=%d", context != NULL);
        TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
        TRACE(cuCtxDestroy_v2(context));
    }
    return 0;
}
