// build: -ldl
/* For every line "NAME VERSION FLAGS SYMBOL" of standard input, compares the address that
 * cuGetProcAddress returns for the name with the one that dlsym returns for the symbol, and prints
 * "NAME VERSION FLAGS SYMBOL RESULT same|other|null|unexported FILE". */
#include <stdio.h>
#include <string.h>
#include "lookup.h"

static const char *file_of(void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname)
        return "-";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    __typeof__(&cuInit) start = (__typeof__(&cuInit))dlsym(driver, "cuInit");
    if (!start || start(0)) {
        fprintf(stderr, "cuInit fails\n");
        return 1;
    }
    char name[128], symbol[128];
    int version;
    unsigned long long flags;
    while (scanf("%127s %d %llu %127s", name, &version, &flags, symbol) == 4) {
        void *found = NULL, *exported = dlsym(driver, symbol);
        int result = proc_address(driver, name, &found, version, flags);
        const char *verdict = !found ? "null"
                              : !exported ? "unexported"
                              : found == exported ? "same"
                                                  : "other";
        printf("%s %d %llu %s %d %s %s\n", name, version, flags, symbol, result, verdict,
               file_of(found));
    }
    return 0;
}
