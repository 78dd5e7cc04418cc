/* The driver's own symbol lookup. */
#pragma once
#include <dlfcn.h>
#include "cuda.h"

/* Its newer form, or the older one: drivers before 12.0 have no other. */
static inline int proc_address(void *driver, const char *name, void **function, int version,
                               uint64_t flags)
{
    int status;
    __typeof__(&cuGetProcAddress_v2) newer =
        (__typeof__(&cuGetProcAddress_v2))dlsym(driver, "cuGetProcAddress_v2");
    if (newer)
        return newer(name, function, version, flags, &status);
    __typeof__(&cuGetProcAddress) older =
        (__typeof__(&cuGetProcAddress))dlsym(driver, "cuGetProcAddress");
    return older ? older(name, function, version, flags) : CUDA_ERROR_NOT_FOUND;
}
