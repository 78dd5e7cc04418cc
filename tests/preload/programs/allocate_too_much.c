// build: -lcuda
/* A neighbour that repeatedly requests argv[1] MiB, which never fit, until standard input ends. */
#include <poll.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t requested = mebibytes(argv[argc - 1]);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long refused = 0;
    use_device(0);
    SAY("requesting");
    while (poll(&input, 1, 0) == 0) {
        CUdeviceptr allocation;
        if (cuMemAlloc_v2(&allocation, requested) != CUDA_ERROR_OUT_OF_MEMORY) {
            SAY("FAILED %zu bytes granted", requested);
            return 1;
        }
        refused++;
    }
    SAY("refused %d", refused > 0);
    return 0;
}
