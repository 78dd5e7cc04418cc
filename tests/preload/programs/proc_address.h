/* Shared by the programs that look functions up by cuGetProcAddress. It takes a name without its version
 * suffix, and the CUDA version that the caller was compiled for. */
#pragma once
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "cuda.h"

#define CUDA_VERSION 12000

typedef __typeof__(cuGetProcAddress) get_proc_address;
typedef __typeof__(cuGetProcAddress_v2) get_proc_address_v2;

static inline const char *base_name(const char *symbol)
{
    static char base[128];
    strncpy(base, symbol, sizeof base - 1);
    char *suffix = strstr(base, "_v2");
    if (suffix)
        *suffix = '\0';
    return base;
}
