// build: -ldl
/* cuGetProcAddress_v2, found by dlsym: cuda-python, libcudart 12 and 13. */
#include "proc_address.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    void *function = NULL;
    int status = -1;
    get_proc_address_v2 *get =
        (get_proc_address_v2 *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    if (get(base_name(symbol), &function, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status))
        return NULL;
    return status == 0 ? function : NULL;
}
