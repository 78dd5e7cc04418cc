// build: -lcuda
/* A server that reads the free memory first: it prints it in MiB, takes argv[1] MiB and is killed. */
#include <signal.h>
#include "trace.h"

int main(int count, char **argv)
{
    size_t free_bytes = 0, total = 0;
    CUdeviceptr memory;
    use_device(0);
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    SAY("%zu", free_bytes >> 20);
    MUST(cuMemAlloc_v2(&memory, (size_t)atoi(argv[count - 1]) << 20));
    return raise(SIGKILL);
}
