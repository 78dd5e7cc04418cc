// build: -ldl
/* dlvsym found by dlvsym, and dlsym by that. */
#include "find_dlsym.h"
#include "walk.h"

typedef void *dlvsym_function(void *handle, const char *symbol, const char *version);

void *resolve(const char *symbol)
{
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        dlvsym_function *find = (dlvsym_function *)dlvsym(RTLD_DEFAULT, "dlvsym", versions[i]);
        dlsym_function *found =
            find ? (dlsym_function *)find(RTLD_DEFAULT, "dlsym", versions[i]) : NULL;
        if (found)
            return found(dlopen("libcuda.so.1", RTLD_NOW), symbol);
    }
    return NULL;
}
