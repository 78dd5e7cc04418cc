// build: -shared -fPIC -Wl,-soname,libcuda.so.1 -ldl
/* A driver that starts another one, the library INNER, in cuInit. It does not import getenv, or it does
 * and asks nothing (-DIMPORTS). */
#include <dlfcn.h>
#include <stdlib.h>
#include "cuda.h"

#define AS(name, address) ((__typeof__(&name))(address))

CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device);

#ifdef IMPORTS
char *(*imported)(const char *) = getenv;
#endif

static void *inner(const char *name)
{
    static void *library;
    if (!library && !(library = dlopen(INNER, RTLD_NOW | RTLD_LOCAL)))
        abort();
    return dlsym(library, name);
}

CUresult cuInit(unsigned flags)
{
    return AS(cuInit, inner("cuInit"))(flags);
}

CUresult cuDeviceGetCount(int *count)
{
    return AS(cuDeviceGetCount, inner("cuDeviceGetCount"))(count);
}

CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device)
{
    return AS(cuDeviceGetUuid_v2, inner("cuDeviceGetUuid_v2"))(uuid, device);
}
