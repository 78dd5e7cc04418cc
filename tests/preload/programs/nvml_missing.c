// build: -ldl
/* Looks up the functions in argv in an NVML that is opened by name. */
#include <dlfcn.h>
#include "trace.h"

int main(int argc, char **argv)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_GLOBAL);
    for (int i = 1; i < argc; i++)
        SAY("%s: by handle %d, in the global scope %d", argv[i], dlsym(library, argv[i]) != NULL,
            dlsym(RTLD_DEFAULT, argv[i]) != NULL);
    return 0;
}
