/* Calls of a driver that must succeed; a failure ends the program and says which. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "api.h"

static void *driver;

static void *found(const char *symbol)
{
    void *function = dlsym(driver, symbol);
    if (!function) {
        fprintf(stderr, "load: libcuda.so.1 has no %s: this workload needs a newer driver\n", symbol);
        exit(1);
    }
    return function;
}

static void must(int result, const char *call)
{
    if (result) {
        fprintf(stderr, "load: %s: CUresult %d\n", call, result);
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
