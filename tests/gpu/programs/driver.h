/* Driver calls that must succeed: a failure ends the program with the name of the call. */
#pragma once
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "cuda.h"

static void *driver;

static void *found(const char *symbol)
{
    void *function = dlsym(driver, symbol);
    if (!function) {
        fprintf(stderr, "%s: libcuda.so.1 has no %s; this workload needs a newer driver\n",
                program_invocation_short_name, symbol);
        exit(1);
    }
    return function;
}

static void must(int result, const char *call)
{
    if (result) {
        fprintf(stderr, "%s: %s: CUresult %d\n", program_invocation_short_name, call, result);
        exit(1);
    }
}

/* The call's result. */
#define CALL(symbol, ...)                                                       \
    __extension__({                                                             \
        static __typeof__(&symbol) function_;                                   \
        if (!function_)                                                         \
            function_ = (__typeof__(&symbol))found(#symbol);                    \
        function_(__VA_ARGS__);                                                 \
    })

#define DO(symbol, ...) must(CALL(symbol, __VA_ARGS__), #symbol)
