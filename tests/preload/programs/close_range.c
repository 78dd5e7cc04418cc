// build: -lcuda
/* Closes every descriptor that it does not know, as daemons do, while it holds argv[1] MiB. It ends
 * when standard input ends. */
#include <fcntl.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUdeviceptr allocation = UNTOUCHED, more = UNTOUCHED;
    close_range(3, ~0u, 0);
    use_device(0);
    TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
    close_range(3, ~0u, 0);
    /* The program's next file gets the number of a closed descriptor. */
    int file = open("/dev/null", O_RDONLY);
    TRACE(cuMemAlloc_v2(&more, asked), "granted=%d", more != UNTOUCHED);
    SAY("descriptor %d is ours: %d", file, fcntl(file, F_GETFD) >= 0);
    SAY("holding");
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
    return 0;
}
