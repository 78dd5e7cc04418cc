/* One line per call, "call -> result out-values", so that a run with the library can be compared
 * with a run without it. Pointers are numbered in the order in which they appear; an out value that
 * the call left alone shows as such, because what a failing call writes is part of its contract. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include "cuda.h"

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

/* What an out value holds before the call. */
#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull

#define TRACE(call, ...)                                     \
    __extension__({                                          \
        int result_ = (call);                                \
        printf("%s -> %d", #call, result_);                  \
        __VA_OPT__(printf(" " __VA_ARGS__);)                 \
        putchar('\n');                                       \
        fflush(stdout);                                      \
        result_;                                             \
    })

/* For a line that is no driver call. */
#define SAY(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

static inline const char *pointer(unsigned long long value)
{
    static unsigned long long seen[4096];
    static char names[8][24];
    static unsigned count, turn;
    if (value == 0)
        return "NULL";
    if (value == UNTOUCHED)
        return "untouched";
    unsigned index = 0;
    while (index < count && seen[index] != value)
        index++;
    if (index == count && count < sizeof seen / sizeof *seen)
        seen[count++] = value;
    char *name = names[turn++ % 8];
    snprintf(name, sizeof names[0], "p%u", index);
    return name;
}

#define POINTER(value) pointer((unsigned long long)(uintptr_t)(value))

static inline const char *bytes(unsigned long long value)
{
    static char names[8][32];
    static unsigned turn;
    char *name = names[turn++ % 8];
    if (value == UNTOUCHED || value == (unsigned)UNTOUCHED)
        return "untouched";
    snprintf(name, sizeof names[0], "%llu", value);
    return name;
}

/* A program's argument in MiB, as bytes. */
static inline size_t mebibytes(const char *text)
{
    return strtoull(text, NULL, 10) * MiB;
}

/* Ends the program where going on would only blur the failure. */
static inline void must(int result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        SAY("FAILED %s -> %d", what, result);
        exit(2);
    }
}
#define MUST(call) must((call), #call)

/* The usual start: device `ordinal` with its primary context current. */
static inline CUcontext use_device(int ordinal)
{
    CUdevice device;
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, ordinal));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return context;
}
