// build: -lcuda
/* Holds argv[1] MiB until standard input ends, and maps memory at all addresses below the lowest programs,
 * as an emulator does for its guest. */
#include <sys/mman.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    CUdeviceptr allocation = UNTOUCHED;
    char *low = (char *)0x10000;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    use_device(0);
    MUST(cuMemAlloc_v2(&allocation, mebibytes(argv[argc - 1])));
    if (mmap(low, 0x3f0000, PROT_READ, flags, -1, 0) != low)
        return 1;
    SAY("holding");
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
    return 0;
}
