// build: -lcuda
/* Allocates argv[1] MiB and ends at once; the exit code is the driver's result. */
#include "trace.h"

int main(int argc, char **argv)
{
    CUdeviceptr allocation = UNTOUCHED;
    use_device(0);
    return cuMemAlloc_v2(&allocation, mebibytes(argv[argc - 1]));
}
