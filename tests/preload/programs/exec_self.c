// build: -lcuda
/* exec frees the process's memory: it holds argv[1] MiB before, and as much in the next program. */
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[1]);
    CUdeviceptr allocation = UNTOUCHED;
    use_device(0);
    CUresult result = cuMemAlloc_v2(&allocation, asked);
    /* The memory is available again when the driver has freed it, as after the end of any process. */
    for (int tries = 0; argc > 2 && result == CUDA_ERROR_OUT_OF_MEMORY && tries < 1000; tries++) {
        usleep(5000);
        result = cuMemAlloc_v2(&allocation, asked);
    }
    SAY("%s exec: %d", argc > 2 ? "after" : "before", result);
    if (argc == 2)
        execl("/proc/self/exe", argv[0], argv[1], "again", NULL);
    return 0;
}
