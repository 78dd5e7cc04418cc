// build: -ldl
/* Looks up the function argv[1] in the driver, closes the driver, and loads the plug-in $PLUGIN, which is linked
 * with it. The driver cannot return to the same address. */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include "trace.h"

int main(int argc, char **argv)
{
    (void)argc;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    uintptr_t at = ((struct link_map *)driver)->l_addr;
    printf("%s found=%d\n", argv[1], dlsym(driver, argv[1]) != NULL);
    dlclose(driver);
    mmap((void *)at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    void *plugin = dlopen(getenv("PLUGIN"), RTLD_NOW);
    if (!plugin)
        return puts(dlerror()), 1;
    ((void (*)(void))dlsym(plugin, "allocate"))();
    return 0;
}
