/* Finds glibc's dlsym by dlvsym, as programs with their own dlsym must. */
#pragma once
#include <dlfcn.h>
#include <stddef.h>

typedef void *dlsym_function(void *handle, const char *symbol);

static inline dlsym_function *versioned_dlsym(void *where)
{
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};
    void *function = NULL;
    for (size_t i = 0; i < sizeof versions / sizeof *versions && !function; i++)
        function = dlvsym(where, "dlsym", versions[i]);
    return (dlsym_function *)function;
}
