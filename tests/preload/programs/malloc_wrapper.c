// build: -shared -fPIC -ldl
/* A preloaded allocator front, as heap profilers have it: it finds the real malloc at its first call,
 * so a dlsym that allocates while it looks would call it again before it is ready. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

void *malloc(size_t size)
{
    static void *(*next)(size_t);
    static int looking;
    if (!next) {
        if (looking++) {
            if (write(STDERR_FILENO, "malloc called by dlsym\n", 23) > 0)
                _exit(99);
        }
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    }
    return next(size);
}
