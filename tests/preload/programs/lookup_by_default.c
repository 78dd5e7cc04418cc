// build: -ldl
/* dlopen with RTLD_GLOBAL, then dlsym in the global scope. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return dlsym(RTLD_DEFAULT, symbol);
}
