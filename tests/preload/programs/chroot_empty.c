// build: -lcuda
/* A service that calls chroot($EMPTY) after it has started. */
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED;
    use_device(0);
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    if (chroot(getenv("EMPTY")) || chdir("/")) {
        SAY("FAILED chroot: needs root");
        return 1;
    }
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    TRACE(cuMemFree_v2(a));
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    return 0;
}
