// build: -ldl
/* dlopen of the driver by an absolute path, here $LIBCUDA. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    return dlsym(dlopen(getenv("LIBCUDA"), RTLD_NOW), symbol);
}
