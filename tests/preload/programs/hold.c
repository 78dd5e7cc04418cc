// build: -lcuda
/* Holds argv[1] MiB on the device of ordinal argv[2], by default 0, until standard input ends. */
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    CUdeviceptr allocation = UNTOUCHED;
    size_t asked = mebibytes(argv[1]);
    use_device(argc > 2 ? atoi(argv[2]) : 0);
    MUST(cuMemAlloc_v2(&allocation, asked));
    SAY("holding");
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
    return 0;
}
