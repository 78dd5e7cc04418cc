// build: -shared -fPIC -ldl
/* A plugin with its own way into the driver, that allocates in whatever context is current. */
#include <dlfcn.h>
#include "cuda.h"

CUresult plugin_allocate(CUdeviceptr *allocation, size_t size)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return ((__typeof__(cuMemAlloc_v2) *)dlsym(driver, "cuMemAlloc_v2"))(allocation, size);
}
