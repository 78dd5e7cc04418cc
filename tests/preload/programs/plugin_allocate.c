// build: -shared -fPIC -ldl
/* A plugin that opens the driver itself and allocates in the current context. */
#include <dlfcn.h>
#include "cuda.h"

CUresult plugin_allocate(CUdeviceptr *allocation, size_t size)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return ((__typeof__(cuMemAlloc_v2) *)dlsym(driver, "cuMemAlloc_v2"))(allocation, size);
}
