// build: -Wl,--no-as-needed -lcuda -ldl
/* dlsym(RTLD_NEXT) from a program that is linked against the driver: wrappers and profilers. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    return dlsym(RTLD_NEXT, symbol);
}
