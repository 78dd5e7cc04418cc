// build: -ldl
/* dlopen of libcuda.so and dlsym: tinygrad, hashcat, Taichi. */
#include <dlfcn.h>
#include "road.h"

void *resolve(const char *symbol)
{
    return dlsym(dlopen("libcuda.so", RTLD_LAZY), symbol);
}
