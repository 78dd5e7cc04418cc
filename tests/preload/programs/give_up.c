// build: -lcuda
/* A service that gives something up, argv[1]: `chroot` to $EMPTY, or the rights of root with `setuid`. With
 * argv[2], it holds so many MiB then, and afterwards requests them, frees them and requests them again. */
#include <string.h>
#include <unistd.h>
#include "trace.h"

static void give_up(const char *what)
{
    if (strcmp(what, "chroot") ? setgid(65534) || setuid(65534) : chroot(getenv("EMPTY")) || chdir("/")) {
        SAY("FAILED %s: needs root", what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED;
    if (argc < 3) {
        give_up(argv[1]);
        TRACE(cuInit(0));
        return 0;
    }
    size_t asked = mebibytes(argv[2]);
    use_device(0);
    TRACE(cuMemAlloc_v2(&a, asked), "granted=%d", a != UNTOUCHED);
    give_up(argv[1]);
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    TRACE(cuMemFree_v2(a));
    TRACE(cuMemAlloc_v2(&b, asked), "granted=%d", b != UNTOUCHED);
    return 0;
}
