// build: -lcuda
/* Allocates argv[1] MiB with NULL as the output. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    use_device(0);
    TRACE(cuMemAlloc_v2(NULL, asked));
    TRACE(cuMemAlloc(NULL, (unsigned)asked));
    return 0;
}
