// build: -ldl
/* dlvsym on the driver: libcuda has no symbol versions, so any version is accepted. */
#include <dlfcn.h>
#include "road.h"

void *resolve(const char *symbol)
{
    return dlvsym(dlopen("libcuda.so.1", RTLD_NOW), symbol, "ANY_1.0");
}
