// build: -shared -fPIC -O2 -Wl,-soname,libcuda.so.1 -ldl
/* A thin driver, as WSL2's: each function looks itself up in an inner library of the same SONAME ($INNER).
 * Some call others of its own exports, by OWN(name): by name (the default), or as the build says. It has the
 * functions below, and FUNCTIONS, which is X(name) for each (x86-64). */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
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
FORWARD(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
        config, function, parameters, extra)
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

/* Waits until the test has opened and closed the other end of $PAUSE; the first time only. */
static void pause_once(void)
{
    static int done;
    const char *path = getenv("PAUSE");
    if (!path || done++)
        return;
    int end = open(path, O_RDONLY);
    while (read(end, &(char){0}, 1) > 0) {
    }
    close(end);
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra)
{
    pause_once();
    CUlaunchConfig config = {{x, y, z}, {block_x, block_y, block_z}, shared, stream, NULL, 0};
    return OWN(cuLaunchKernelEx)(&config, function, parameters, extra);
}

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

/* Calls the program back, if it has said so. */
CUresult cuCtxSynchronize(void)
{
    if (!callback)
        return AS(cuCtxSynchronize, inner("cuCtxSynchronize"))();
    callback();
    return CUDA_SUCCESS;
}

#ifdef FUNCTIONS
#define X(name) #name,
static const char *const names[] = {FUNCTIONS};
#undef X

__attribute__((used)) static void *inner_at(long index)
{
    static void *known[sizeof names / sizeof *names];
    if (!known[index] && !(known[index] = inner(names[index])))
        abort();
    return known[index];
}

/* Jumps to the inner function, with the arguments in place. None is a floating-point number. */
__asm__(".text\n"
        "forward:\n"
        "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\n"
        "mov 48(%rsp), %rdi\n"
        "call inner_at\n"
        "mov %rax, %r11\n"
        "pop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"
        "add $8, %rsp\n"
        "jmp *%r11\n"
        ".set index, 0\n");

#define X(name)                                        \
    __asm__(".globl " #name "\n"                       \
            ".type " #name ", @function\n" #name ":\n" \
            "push $index\n"                            \
            "jmp forward\n"                            \
            ".set index, index + 1\n");
FUNCTIONS
#endif
