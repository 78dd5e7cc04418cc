// build: -ldl
/* The old cuGetProcAddress found by the new one: libcudart 13 uses both. */
#include "proc_address.h"
#include "walk.h"

void *resolve(const char *symbol)
{
    void *function = NULL;
    int status = -1;
    get_proc_address_v2 *new =
        (get_proc_address_v2 *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    if (new("cuGetProcAddress", &function, 11030, 0, &status) || status != 0)
        return NULL;
    get_proc_address *old = (get_proc_address *)function;
    return old(base_name(symbol), &function, 11030, 0) ? NULL : function;
}
