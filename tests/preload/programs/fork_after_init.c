// build: -lcuda
/* A process that forks with CUDA in use. CUDA does not work in the child; its calls with inherited objects
 * must neither hang nor change what the parent holds. */
#include <sys/wait.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUdeviceptr allocation = UNTOUCHED, more = UNTOUCHED;
    size_t free = UNTOUCHED, total = UNTOUCHED;
    CUcontext context = use_device(0);
    TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
    if (fork() == 0) {
        TRACE(cuMemGetInfo_v2(&free, &total));
        TRACE(cuMemAlloc_v2(&more, MiB), "granted=%d", more != UNTOUCHED);
        TRACE(cuMemFree_v2(allocation));
        TRACE(cuCtxDestroy_v2(context));
        TRACE(cuDevicePrimaryCtxRelease_v2(0));
        TRACE(cuInit(0));
        _exit(0);
    }
    int status = -1;
    wait(&status);
    SAY("child ended with %d", status);
    TRACE(cuMemAlloc_v2(&more, asked), "granted=%d", more != UNTOUCHED);
    TRACE(cuMemFree_v2(allocation));
    TRACE(cuMemAlloc_v2(&more, asked), "granted=%d", more != UNTOUCHED);
    return 0;
}
