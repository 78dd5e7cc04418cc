// build: -ldl
/* dlsym found by dlsym in the library that has it: libdl before glibc 2.34, then libc. */
#include "find_dlsym.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    dlsym_function *found = (dlsym_function *)dlsym(dlopen("libdl.so.2", RTLD_NOW), "dlsym");
    return found(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}
