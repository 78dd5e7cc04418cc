// build: -ldl
/* Looks up functions that are newer than the driver. */
#include <dlfcn.h>
#include "trace.h"

int main(void)
{
    static const char *const names[] = {"cuInit", "cuDeviceGetCount", "cuMemAlloc_v2",
                                        "cuMemFree_v2", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2",
                                        "cuGetProcAddress", "cuGetProcAddress_v2",
                                        "cuLaunchKernelEx"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        SAY("%s: by handle %d, by version %d, in the global scope %d", names[i],
            dlsym(driver, names[i]) != NULL, dlvsym(driver, names[i], "ANY_1.0") != NULL,
            dlsym(RTLD_DEFAULT, names[i]) != NULL);
    return 0;
}
