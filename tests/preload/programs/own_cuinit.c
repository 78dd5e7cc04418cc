// build: -rdynamic -ldl
/* A program that uses the driver and has its own functions with the driver's names. */
#include <dlfcn.h>
#include "trace.h"

int cuInit(unsigned flags)
{
    return 1000 + (int)flags;
}

int main(void)
{
    __typeof__(cuInit) *global = (__typeof__(cuInit) *)dlsym(RTLD_DEFAULT, "cuInit");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    __typeof__(cuInit) *of_driver = (__typeof__(cuInit) *)dlsym(driver, "cuInit");
    TRACE(cuInit(1));
    TRACE(global(2));
    TRACE(of_driver(0));
    return 0;
}
