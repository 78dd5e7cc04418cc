/* The same calls for every way to look up the driver's functions: allocate 64 MiB and then argv[1] MiB on
 * device 0, and free both. Each program lookup_by_*.c has its own
 * `void *resolve(const char *symbol)`. */
#pragma once
#include <string.h>
#include "trace.h"

#ifndef FIND
void *resolve(const char *symbol);

static inline void *resolve_or_exit(const char *symbol)
{
    void *function = resolve(symbol);
    if (!function) {
        SAY("FAILED %s not found", symbol);
        exit(2);
    }
    return function;
}
#define FIND(symbol) ((__typeof__(&symbol))resolve_or_exit(#symbol))
#endif

#define WALK(symbol, arguments, ...) TRACE(FIND(symbol) arguments, __VA_ARGS__)

int main(int argc, char **argv)
{
    size_t asked = argc > 1 ? mebibytes(argv[1]) : 64 * MiB;
    CUdevice device = -1;
    CUcontext context = NULL;
    CUdeviceptr first = UNTOUCHED, second = UNTOUCHED;
    size_t free = UNTOUCHED, total = UNTOUCHED;
    WALK(cuInit, (0));
    WALK(cuDeviceGet, (&device, 0), "device=%d", device);
    WALK(cuDeviceTotalMem_v2, (&total, device), "total=%s", bytes(total));
    WALK(cuDevicePrimaryCtxRetain, (&context, device), "context=%s", POINTER(context));
    WALK(cuCtxSetCurrent, (context));
    WALK(cuMemAlloc_v2, (&first, 64 * MiB), "pointer=%s", pointer(first));
    WALK(cuMemAlloc_v2, (&second, asked), "pointer=%s", pointer(second));
    WALK(cuMemGetInfo_v2, (&free, &total), "free=%s total=%s", bytes(free), bytes(total));
    if (second != UNTOUCHED)
        WALK(cuMemFree_v2, (second));
    WALK(cuMemFree_v2, (first));
    WALK(cuDevicePrimaryCtxRelease_v2, (device));
    return 0;
}
