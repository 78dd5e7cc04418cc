// build: -ldl
/* RTLD_NEXT from a program without CUDA. It does the same lookup twice, because a lost caller shows only
 * in the second one. */
#include <dlfcn.h>
#include <string.h>
#include "trace.h"

int own_symbol(void)
{
    return 1;
}

static void look(const char *name)
{
    Dl_info info = {0};
    void *function = dlsym(RTLD_NEXT, name);
    const char *error = dlerror();
    if (function)
        dladdr(function, &info);
    SAY("%s in %s, %s", name, function ? strrchr(info.dli_fname, '/') + 1 : "nothing",
        error ? error : "no error");
}

int main(void)
{
    look("open");
    look("open");
    look("malloc");
    look("own_symbol");
    look("dlclose");
    return 0;
}
