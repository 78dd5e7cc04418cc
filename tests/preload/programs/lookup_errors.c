// build: -ldl
/* dlerror after lookups that fail and lookups that succeed. */
#include <dlfcn.h>
#include "trace.h"

static void report(const char *lookup, void *function)
{
    const char *first = dlerror();
    SAY("%s -> %s, %s", lookup, function ? "found" : "NULL", first ? first : "no error");
    const char *second = dlerror();
    SAY("  again: %s", second ? second : "no error");
}
#define LOOK(lookup) report(#lookup, lookup)

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    LOOK(dlsym(driver, "cuInit"));
    LOOK(dlsym(driver, "cuNoSuchThing"));
    LOOK(dlsym(driver, "no_such_thing"));
    LOOK(dlsym(driver, ""));
    LOOK(dlsym(libc, "cuInit"));
    LOOK(dlsym(RTLD_DEFAULT, "cuNoSuchThing"));
    LOOK(dlsym(RTLD_NEXT, "cuNoSuchThing"));
    LOOK(dlvsym(libc, "malloc", "GLIBC_99"));
    LOOK(dlvsym(driver, "cuNoSuchThing", "ANY_1.0"));
    LOOK(dlvsym(libc, "cuInit", "ANY_1.0"));
    LOOK(dlsym(dlopen("libno_such_library.so", RTLD_NOW), "cuInit"));

    /* A lookup that succeeds clears an earlier error. */
    dlsym(driver, "cuNoSuchThing");
    LOOK(dlsym(driver, "cuMemAlloc_v2"));
    return 0;
}
