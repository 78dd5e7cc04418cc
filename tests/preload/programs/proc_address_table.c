// build: -ldl
/* Prints what cuGetProcAddress returns for every name on standard input, for programs compiled for every
 * generation of CUDA. The exported symbol at each address shows which form it is. A driver before CUDA 12
 * has no cuGetProcAddress_v2: its results are -1. */
#include "proc_address.h"
#include "trace.h"

static const char *symbol_of(void *function)
{
    Dl_info info;
    if (!function)
        return "NULL";
    if (!dladdr(function, &info) || info.dli_saddr != function)
        return "no exported symbol";
    return info.dli_sname;
}

int main(void)
{
    static const int versions[] = {2000,  3020,  4000,  7000,  9000,  11000, 11030,
                                   11080, 12000, 12020, 12080, 13000, 13040};
    static const uint64_t flags[] = {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                     CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    get_proc_address *v1 = (get_proc_address *)dlsym(driver, "cuGetProcAddress");
    get_proc_address_v2 *v2 = (get_proc_address_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    char name[128];
    while (scanf("%127s", name) == 1) {
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
            for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
                void *old = NULL, *new = NULL;
                int status = -1;
                int old_result = v1(name, &old, versions[v], flags[f]);
                int new_result = v2 ? v2(name, &new, versions[v], flags[f], &status) : -1;
                printf("%s %d %d -> v1 %d %s, v2 %d %s status=%d\n", name, versions[v],
                       (int)flags[f], old_result, symbol_of(old), new_result, symbol_of(new),
                       status);
            }
        }
    }
    return 0;
}
