// build: -ldl
/* A program without CUDA that checks whether CUDA is present. */
#include <dlfcn.h>
#include "trace.h"

static void look(void *where, const char *name)
{
    void *function = dlsym(where, name);
    const char *error = dlerror();
    SAY("dlsym(%s, %s) -> %s, %s", where == RTLD_DEFAULT ? "RTLD_DEFAULT" : "RTLD_NEXT", name,
        function ? "found" : "NULL", error ? error : "no error");
}

int main(void)
{
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2",
                                        "nvmlDeviceGetMemoryInfo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        look(RTLD_DEFAULT, names[i]);
        look(RTLD_NEXT, names[i]);
    }
    return 0;
}
