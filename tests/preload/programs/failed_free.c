// build: -lcuda
/* A free that the driver refuses releases nothing: argv[1] MiB stay charged. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED;
    use_device(0);
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    TRACE(cuMemFree_v2(a + 256));
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    TRACE(cuMemFree_v2(a));
    TRACE(cuMemFree_v2(a));
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    return 0;
}
