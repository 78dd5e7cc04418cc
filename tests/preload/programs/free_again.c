// build: -lcuda
/* The bytes of a freed allocation are available for the next one, however often. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    use_device(0);
    for (int round = 0; round < 200; round++) {
        CUdeviceptr allocation = UNTOUCHED;
        MUST(cuMemAlloc_v2(&allocation, asked));
        MUST(cuMemFree_v2(allocation));
    }
    SAY("200 rounds");
    return 0;
}
