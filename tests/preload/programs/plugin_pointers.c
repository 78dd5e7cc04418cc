// build: -shared -fPIC -ldl
/* A plug-in that finds the driver's functions itself, and keeps them in pointers that have their names. */
#include <dlfcn.h>

int (*cuInit)(unsigned);
int (*cuDriverGetVersion)(int *);

__attribute__((visibility("default"))) int start_plugin(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cuInit = (__typeof__(cuInit))dlsym(driver, "cuInit");
    return cuInit ? cuInit(0) : -1;
}
