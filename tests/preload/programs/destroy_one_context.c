// build: -lcuda
/* Two contexts with argv[1] MiB each: destroying one frees its memory and not the other's. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUcontext first = NULL, second = NULL;
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED, c = UNTOUCHED, d = UNTOUCHED;
    MUST(cuInit(0));
    MUST(cuCtxCreate_v2(&first, 0, 0));
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    MUST(cuCtxCreate_v2(&second, 0, 0));
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    TRACE(cuCtxDestroy_v2(first));
    TRACE(cuMemAlloc_v2(&c, asked), "granted=%d", c != UNTOUCHED);
    TRACE(cuMemAlloc_v2(&d, asked), "granted=%d", d != UNTOUCHED);
    return 0;
}
