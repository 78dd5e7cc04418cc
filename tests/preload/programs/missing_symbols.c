// build: -ldl
/* Looks up each symbol on standard input in the driver, or the library argv[1], which may lack some. */
#include <dlfcn.h>
#include "trace.h"

int main(int argc, char **argv)
{
    char name[128];
    void *driver = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    while (scanf("%127s", name) == 1)
        SAY("%s: by handle %d, by version %d, in the global scope %d, next %d", name,
            dlsym(driver, name) != NULL, dlvsym(driver, name, "ANY_1.0") != NULL,
            dlsym(RTLD_DEFAULT, name) != NULL, dlsym(RTLD_NEXT, name) != NULL);
    return 0;
}
