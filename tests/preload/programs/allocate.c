// build: -lcuda
/* One allocation: argv[1] MiB on the device of ordinal argv[2], by default 0; held until the end. */
#include "trace.h"

int main(int argc, char **argv)
{
    CUdeviceptr allocation = UNTOUCHED;
    size_t requested = mebibytes(argv[1]);
    use_device(argc > 2 ? atoi(argv[2]) : 0);
    TRACE(cuMemAlloc_v2(&allocation, requested), "pointer=%s", pointer(allocation));
    return 0;
}
