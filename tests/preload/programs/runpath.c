// build: -shared -fPIC -ldl -Wl,-rpath,$ORIGIN,--enable-new-dtags
/* A library that opens its neighbour by bare name: the dynamic linker searches the RUNPATH of the
 * object that the call to dlopen comes from. */
#include <dlfcn.h>

int call_sibling(void)
{
    void *library = dlopen("libsibling.so", RTLD_NOW);
    int (*sibling)(void) = library ? (int (*)(void))dlsym(library, "sibling") : 0;
    return sibling ? sibling() : -1;
}
