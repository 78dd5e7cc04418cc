// build: -ldl
/* A plugin ($PLUGIN), loaded with RTLD_LOCAL, that opens the driver itself: extension modules. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    void *(*resolve_there)(const char *) =
        (void *(*)(const char *))dlsym(dlopen(getenv("PLUGIN"), RTLD_NOW | RTLD_LOCAL),
                                       "plugin_resolve");
    return resolve_there(symbol);
}
