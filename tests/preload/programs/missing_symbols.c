// build: -ldl
/* Looks up each symbol on standard input, of which the driver may lack some. */
#include <dlfcn.h>
#include "trace.h"

int main(void)
{
    char name[128];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    while (scanf("%127s", name) == 1)
        SAY("%s: by handle %d, by version %d, in the global scope %d, next %d", name,
            dlsym(driver, name) != NULL, dlvsym(driver, name, "ANY_1.0") != NULL,
            dlsym(RTLD_DEFAULT, name) != NULL, dlsym(RTLD_NEXT, name) != NULL);
    return 0;
}
