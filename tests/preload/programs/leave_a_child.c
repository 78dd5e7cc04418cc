// build: -lcuda
/* Allocates argv[1] MiB and ends, but a child that does nothing keeps the driver's files open for four
 * seconds. */
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    CUdeviceptr allocation = UNTOUCHED;
    use_device(0);
    CUresult result = cuMemAlloc_v2(&allocation, mebibytes(argv[argc - 1]));
    SAY("%s", result == CUDA_SUCCESS ? "granted" : "refused");
    if (fork() == 0) {
        /* The test reads the output to its end. */
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        sleep(4);
        _exit(0);
    }
    return 0;
}
