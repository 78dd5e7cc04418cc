// build: -ldl
/* dlsym itself obtained by dlsym in the library that holds it: libdl before glibc 2.34, then libc. */
#include "find_dlsym.h"
#include "road.h"

void *resolve(const char *symbol)
{
    dlsym_function *found = (dlsym_function *)dlsym(dlopen("libdl.so.2", RTLD_NOW), "dlsym");
    return found(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}
