// build: -ldl
/* dlopen of libcuda.so.1 and dlsym: libcudart, PyTorch, ffmpeg. */
#include <dlfcn.h>
#include "walk.h"

void *resolve(const char *symbol)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), symbol);
}
