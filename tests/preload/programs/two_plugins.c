// build: -lcuda -ldl
/* Two libraries ($FIRST, $SECOND), each with its own dlopen of the driver, share one limit: each
 * allocates argv[1] MiB, and the program frees both. */
#include <dlfcn.h>
#include "trace.h"

typedef CUresult allocate(CUdeviceptr *, size_t);

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUdeviceptr a = UNTOUCHED, b = UNTOUCHED;
    use_device(0);
    allocate *first = (allocate *)dlsym(dlopen(getenv("FIRST"), RTLD_NOW), "plugin_allocate");
    allocate *second = (allocate *)dlsym(dlopen(getenv("SECOND"), RTLD_NOW), "plugin_allocate");
    TRACE(first(&a, asked), "pointer=%s", pointer(a));
    TRACE(second(&b, asked), "pointer=%s", pointer(b));
    if (b != UNTOUCHED)
        TRACE(cuMemFree_v2(b));
    TRACE(cuMemFree_v2(a));
    return 0;
}
