// build: -ldl
/* dlsym in a library with the driver's names returns that library's own functions. */
#include <dlfcn.h>
#include "trace.h"

int main(void)
{
    static const char *const names[] = {"curl_easy_init", "custom_fn", "cuInit", "cuMemAlloc_v2",
                                        "nvmlDeviceGetMemoryInfo", "cuNotOfTheDriver"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    void *library = dlopen(getenv("LOOKALIKES"), RTLD_NOW);
    SAY("driver %s, library %s", driver ? "loaded" : "missing", library ? "loaded" : dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int (*function)(unsigned) = (int (*)(unsigned))dlsym(library, names[i]);
        SAY("%s() = %d", names[i], function ? function(0) : -1);
    }
    return 0;
}
