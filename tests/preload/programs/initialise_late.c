// build: -lcuda
/* A service that gives something up before its first call: `chroot` to $EMPTY, or the rights of root
 * with `setuid`. */
#include <string.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    const char *what = argv[argc - 1];
    if (!strcmp(what, "chroot") ? chroot(getenv("EMPTY")) || chdir("/") : setuid(65534)) {
        SAY("FAILED %s: needs root", what);
        return 1;
    }
    TRACE(cuInit(0));
    return 0;
}
