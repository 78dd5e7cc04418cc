// build: -ldl -rdynamic
/* A program with its own dlsym before glibc's, as in jemalloc-like and tracing wrappers. */
#include "find_dlsym.h"
#include "walk.h"

void *dlsym(void *handle, const char *symbol)
{
    static dlsym_function *next;
    if (!next)
        next = versioned_dlsym(RTLD_NEXT);
    return next(handle, symbol);
}

void *resolve(const char *symbol)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}
