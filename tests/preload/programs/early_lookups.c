// build: -ldl
/* Looks up names before main: of the C library, of nothing, and, with an argument, of a driver; the argument
 * is the driver's path or "none". "call" calls the driver, too. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *const plain[] = {"calloc", "close", "clone", "nanosleep", "nice", "dup", "dlopen",
                                    "dl_iterate_phdr", "malloc", "strlen", "cu", "nvml", "dlsymbol",
                                    "cuInitialize", "cudaMalloc", "no_such_function", ""};
static const char *const of_drivers[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress", "nvmlInit_v2"};

static void look(void *handle, const char *name)
{
    printf("%s %d %d\n", name, dlsym(handle, name) != NULL, dlvsym(handle, name, "GLIBC_2.2.5") != NULL);
}

__attribute__((constructor)) static void before_main(int argc, char **argv)
{
    void *const handles[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen(NULL, RTLD_LAZY)};
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned j = 0; j < sizeof plain / sizeof *plain; j++)
            look(handles[i], plain[j]);
        look(handles[i], "dlsym");
        look(handles[i], "dlvsym");
    }
    if (argc < 2)
        return;
    void *driver = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
    for (unsigned j = 0; j < 4; j++) {
        for (unsigned i = 0; i < 3; i++)
            look(handles[i], of_drivers[j]);
        if (driver)
            look(driver, of_drivers[j]);
    }
    if (argc > 2)
        ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
}

int main(void)
{
    puts("main");
    return 0;
}
