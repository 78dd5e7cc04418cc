// build: -ldl
/* Opens, uses, closes and opens the driver again. */
#include <dlfcn.h>
#include "trace.h"

static void use(int round)
{
    int version = -1, count = -1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    SAY("round %d: driver %s", round, driver ? "open" : dlerror());
    TRACE(((__typeof__(cuInit) *)dlsym(driver, "cuInit"))(0));
    TRACE(((__typeof__(cuDriverGetVersion) *)dlsym(driver, "cuDriverGetVersion"))(&version),
          "version=%d", version);
    TRACE(((__typeof__(cuDeviceGetCount) *)dlsym(driver, "cuDeviceGetCount"))(&count), "count=%d",
          count);
    SAY("dlclose -> %d", dlclose(driver));
}

int main(void)
{
    use(1);
    use(2);
    return 0;
}
