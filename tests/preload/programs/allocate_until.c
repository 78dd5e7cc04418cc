// build: -lcuda
/* After a line on standard input, requests argv[1] MiB until they are allocated. Attempts are at least
 * 5 ms apart, so that their number is a lower bound of the time, however busy the machine is. */
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    CUdeviceptr allocation = UNTOUCHED;
    size_t requested = mebibytes(argv[argc - 1]);
    use_device(0);
    SAY("ready");
    if (read(STDIN_FILENO, &(char){0}, 1) != 1)
        return 1;
    for (int tries = 1; tries <= 4000; tries++) {
        CUresult result = cuMemAlloc_v2(&allocation, requested);
        if (result == CUDA_SUCCESS) {
            SAY("granted at try %d", tries);
            return 0;
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            MUST(result);
        if (tries == 1)
            SAY("refused");
        usleep(5000);
    }
    SAY("FAILED never granted");
    return 1;
}
