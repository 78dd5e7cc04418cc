// build: -ldl
/* Weak references, bound by the dynamic linker, to functions that the driver lacks. -DFUNCTIONS=X(name)...
 * names them. Calls each before and after cuInit, and with a context, and prints the results. */
#include <dlfcn.h>
#include "trace.h"

#define X(name) __attribute__((weak)) int name();
FUNCTIONS
#undef X

static void call(const char *name, int (*function)())
{
    char buffer[4096] = {0};
    if (!function) {
        SAY("%s is not bound", name);
        return;
    }
    int with_null = function(0l, 0l, 0l, 0l, 0l, 0l, 0l, 0l, 0l, 0l, 0l, 0l);
    int with_buffers = function(buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer,
                                buffer, buffer, buffer);
    int written = 0;
    for (size_t i = 0; i < sizeof buffer; i++)
        written |= buffer[i];
    SAY("%s -> %d %d written=%d", name, with_null, with_buffers, written);
}

static void call_all(void)
{
#define X(name) call(#name, name);
    FUNCTIONS
#undef X
}

#define DRIVER(symbol) ((__typeof__(&symbol))dlsym(driver, #symbol))

int main(void)
{
    CUcontext context;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    call_all();
    MUST(DRIVER(cuInit)(0));
    call_all();
    MUST(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    MUST(DRIVER(cuCtxSetCurrent)(context));
    call_all();
    return 0;
}
