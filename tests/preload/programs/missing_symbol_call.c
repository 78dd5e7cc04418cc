// build: -ldl
/* A weak reference, bound by the dynamic linker, to a function that the driver lacks. */
#include <dlfcn.h>
#include "trace.h"

#pragma weak cuMemAlloc_v2

int main(void)
{
    CUdeviceptr allocation = UNTOUCHED;
    SAY("driver %s", dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ? "open" : dlerror());
    if (cuMemAlloc_v2)
        TRACE(cuMemAlloc_v2(&allocation, MiB), "pointer=%s", pointer(allocation));
    else
        SAY("no cuMemAlloc_v2");
    return 0;
}
