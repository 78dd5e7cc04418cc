// build: -ldl
/* dlsym found by dlvsym: Nsight, LLVM's OpenMP tools, other preload libraries. */
#include "find_dlsym.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    return versioned_dlsym(RTLD_NEXT)(dlopen("libcuda.so.1", RTLD_NOW), symbol);
}
