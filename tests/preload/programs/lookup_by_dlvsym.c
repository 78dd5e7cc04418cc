// build: -ldl
/* dlvsym on the driver. It finds symbols without a version only in a library without a version table, so
 * the test runs it on such a copy of the driver. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    return dlvsym(dlopen("libcuda.so.1", RTLD_NOW), symbol, "ANY_1.0");
}
