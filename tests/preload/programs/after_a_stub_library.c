// build: -ldl
/* Tries the stub library $STUB_LIBRARY, and then the driver. argv[1] is `close`: the stub library is closed
 * before the driver is opened; `keep`: it is not; `before`: the driver is opened and looked up before it;
 * `both`: as `close`, after a lookup in the driver, which is closed too. argv[2]: MiB to allocate. */
#include <dlfcn.h>
#include <string.h>
#include "trace.h"

#define IN(library, name) ((__typeof__(name) *)dlsym(library, #name))

int main(int argc, char **argv)
{
    const char *how = argv[1], *path = getenv("LIBCUDA");
    CUcontext context = NULL;
    CUdeviceptr first = UNTOUCHED, second = UNTOUCHED;
    size_t total = UNTOUCHED, free = UNTOUCHED, size = strtoull(argv[argc - 1], NULL, 0) << 20;
    void *driver = NULL, *stub;
    __typeof__(cuInit) *init = NULL, *stub_init;
    if (!strcmp(how, "before") || !strcmp(how, "both")) {
        driver = dlopen(path, RTLD_NOW);
        init = IN(driver, cuInit);
        if (!strcmp(how, "both"))
            dlclose(driver);
    }
    stub = dlopen(getenv("STUB_LIBRARY"), RTLD_NOW);
    stub_init = IN(stub, cuInit);
    TRACE(stub_init(0));
    TRACE(IN(stub, cuDriverGetVersion)(NULL));
    if (!strcmp(how, "close") || !strcmp(how, "both"))
        dlclose(stub);
    if (strcmp(how, "before")) {
        /* By the SONAME, unless that is the stub library's. */
        driver = dlopen(strcmp(how, "keep") ? "libcuda.so.1" : path, RTLD_NOW);
        init = IN(driver, cuInit);
    }
    TRACE(init(0));
    TRACE(IN(driver, cuDevicePrimaryCtxRetain)(&context, 0));
    TRACE(IN(driver, cuCtxSetCurrent)(context));
    TRACE(IN(driver, cuMemGetInfo_v2)(&free, &total), "total=%s", bytes(total));
    TRACE(IN(driver, cuMemAlloc_v2)(&first, MiB), "pointer=%s", POINTER(first));
    TRACE(IN(driver, cuMemAlloc_v2)(&second, size), "pointer=%s", POINTER(second));
    return 0;
}
