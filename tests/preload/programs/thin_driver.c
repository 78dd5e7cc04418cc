// build: -shared -fPIC -O2 -Wl,-soname,libcuda.so.1 -ldl
/* A thin driver, as WSL2's: each function looks itself up in an inner library of the same SONAME ($INNER).
 * Some call others of its own exports, by OWN(name): by name (the default), or as the build says. */
#include <dlfcn.h>
#include <stdlib.h>
#include "cuda.h"

#ifndef OWN
#define OWN(name) name
#endif
#define AS(name, address) ((__typeof__(&name))(address))
/* For -DOWN: the ways to look an export of its own up. */
#define BY_DEFAULT(name) AS(name, dlsym(RTLD_DEFAULT, #name))
#define BY_HANDLE(name) AS(name, dlsym(dlopen("libcuda.so.1", RTLD_LAZY), #name))
#define BY_PROC_ADDRESS(name) AS(name, by_proc_address(#name))

static void *inner(const char *name)
{
    static void *library;
    if (!library && !(library = dlopen(getenv("INNER"), RTLD_NOW | RTLD_LOCAL)))
        abort();
    return dlsym(library, name);
}

#ifdef AT_LOAD
__attribute__((constructor)) static void at_load(void)
{
    void *handles[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen(NULL, RTLD_LAZY)};
    for (int i = 0; i < 3; i++) {
        dlsym(handles[i], "cuInit");
        dlvsym(handles[i], "cuMemAlloc_v2", "GLIBC_2.2.5");
    }
    inner("cuInit");
}
#endif

#define FORWARD(name, parameters, ...)            \
    CUresult name parameters                      \
    {                                             \
        return AS(name, inner(#name))(__VA_ARGS__); \
    }

CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDeviceGetUuid(void *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);

FORWARD(cuInit, (unsigned flags), flags)
FORWARD(cuDeviceGet, (CUdevice *device, int ordinal), device, ordinal)
FORWARD(cuDeviceGetCount, (int *count), count)
FORWARD(cuDeviceGetUuid, (void *uuid, CUdevice device), uuid, device)
FORWARD(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), bytes, device)
FORWARD(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device), context, device)
FORWARD(cuDevicePrimaryCtxRelease_v2, (CUdevice device), device)
FORWARD(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active), device, flags, active)
FORWARD(cuCtxSetCurrent, (CUcontext context), context)
FORWARD(cuCtxGetCurrent, (CUcontext *context), context)
FORWARD(cuCtxGetDevice, (CUdevice *device), device)
FORWARD(cuCtxGetApiVersion, (CUcontext context, unsigned *version), context, version)
FORWARD(cuMemGetInfo_v2, (size_t *free, size_t *total), free, total)
FORWARD(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes), pointer, bytes)
FORWARD(cuMemFree_v2, (CUdeviceptr pointer), pointer)
FORWARD(cuGetProcAddress, (const char *name, void **function, int version, uint64_t flags), name, function,
        version, flags)
FORWARD(cuGetProcAddress_v2, (const char *name, void **function, int version, uint64_t flags, int *status),
        name, function, version, flags, status)

__attribute__((unused)) static void *by_proc_address(const char *name)
{
    char base[64] = "";
    void *function = NULL;
    for (int i = 0; i < 63 && name[i] && __builtin_strcmp(name + i, "_v2"); i++)
        base[i] = name[i];
    cuGetProcAddress_v2(base, &function, 12000, 0, NULL);
    return function;
}

/* Functions that call others of their own. */

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
    *pitch = (width + 511) / 512 * 512;
    CUresult result = OWN(cuMemAlloc_v2)(pointer, *pitch * height);
    return element ? result : -1;
}

/* The call is a jump: it returns to the caller of this function. */
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return OWN(cuMemAlloc_v2)(pointer, bytes);
}

/* Not hooked. Returns the total of device 0 in MiB. */
CUresult cuDriverGetVersion(int *version)
{
    size_t total = 0;
    CUresult result = OWN(cuDeviceTotalMem_v2)(&total, 0);
    *version = (int)(total >> 20);
    return result;
}

static void (*callback)(void);

CUresult cuMemHostGetFlags(unsigned *flags, void *function)
{
    (void)flags;
    callback = (void (*)(void))function;
    return CUDA_SUCCESS;
}

/* Calls the program back. */
CUresult cuCtxSynchronize(void)
{
    callback();
    return CUDA_SUCCESS;
}
