// build: -ldl
/* dlopen of libcuda.so and dlsym: tinygrad, hashcat, Taichi. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    return dlsym(dlopen("libcuda.so", RTLD_LAZY), symbol);
}
