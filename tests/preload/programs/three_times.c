// build: -lcuda
/* Three allocations of argv[1] MiB each, held until the end. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    use_device(0);
    for (int time = 0; time < 3; time++) {
        CUdeviceptr allocation = UNTOUCHED;
        TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
    }
    return 0;
}
