// build: -shared -fPIC -ldl
/* A plugin that opens the driver itself. */
#include <dlfcn.h>

void *plugin_resolve(const char *symbol)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), symbol);
}
