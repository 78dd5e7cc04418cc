// build: -shared -fPIC -ldl
/* A preload library of somebody else: it asks for the next definition after itself at each call. */
#include <dlfcn.h>

int subject(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "subject");
    return next ? 10 + next() : -1;
}
