// build: -ldl
/* dlsym found by dlsym, in the global scope. */
#include "find_dlsym.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    dlsym_function *found = (dlsym_function *)dlsym(RTLD_DEFAULT, "dlsym");
    return found(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}
