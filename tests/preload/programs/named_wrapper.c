// build: -shared -fPIC -ldl
/* Another preload library, which looks up the next definition after itself at each call. */
#include <dlfcn.h>

int subject(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "subject");
    return next ? 10 + next() : -1;
}
