// build: -ldl
/* cuGetProcAddress found by itself, twice, as in libcudart 12. */
#include "proc_address.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    void *function = NULL;
    int status = -1;
    get_proc_address_v2 *get =
        (get_proc_address_v2 *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    for (int depth = 0; depth < 2; depth++) {
        if (get("cuGetProcAddress", &function, CUDA_VERSION, 0, &status) || status != 0)
            return NULL;
        get = (get_proc_address_v2 *)function;
    }
    if (get(base_name(symbol), &function, CUDA_VERSION, 0, &status) || status != 0)
        return NULL;
    return function;
}
