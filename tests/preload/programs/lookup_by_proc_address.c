// build: -ldl
/* cuGetProcAddress of CUDA 11.3. */
#include "proc_address.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    void *function = NULL;
    get_proc_address *get =
        (get_proc_address *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress");
    if (get(base_name(symbol), &function, 11030, CU_GET_PROC_ADDRESS_DEFAULT))
        return NULL;
    return function;
}
