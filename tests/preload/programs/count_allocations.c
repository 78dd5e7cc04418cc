// build: -shared -fPIC -ldl
/* A user's preload library: counts the allocations that pass through it on their way to the next one. */
#include <dlfcn.h>
#include <stdio.h>
#include "cuda.h"

static int count;

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    __typeof__(&cuMemAlloc_v2) next = (__typeof__(&cuMemAlloc_v2))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    count++;
    return next(pointer, bytes);
}

__attribute__((destructor)) static void report(void)
{
    printf("counted %d\n", count);
}
