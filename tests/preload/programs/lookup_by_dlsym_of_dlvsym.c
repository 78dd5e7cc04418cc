// build: -ldl
/* dlvsym found by dlsym; see lookup_by_dlvsym.c. */
#include <dlfcn.h>
#include "walk.h"

typedef void *dlvsym_function(void *handle, const char *symbol, const char *version);

void *resolve(const char *symbol)
{
    dlvsym_function *found = (dlvsym_function *)dlsym(RTLD_NEXT, "dlvsym");
    return found(dlopen("libcuda.so.1", RTLD_NOW), symbol, "ANY_1.0");
}
