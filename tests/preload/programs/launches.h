/* Every function that launches, found by every road and called with the same few things: what is
 * launched (a kernel or an executable graph), the stream, and how many blocks. */
#pragma once
#include <dlfcn.h>
#include <string.h>
#include "trace.h"

typedef void *CUstream;
typedef void *CUfunction;

typedef struct {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **parameters;
} CUDA_LAUNCH_PARAMS;

#define KERNEL unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
CUresult cuLaunchKernel(CUfunction, KERNEL, CUstream, void **, void **);
CUresult cuLaunchKernel_ptsz(CUfunction, KERNEL, CUstream, void **, void **);
CUresult cuLaunchKernelEx(const CUlaunchConfig *, CUfunction, void **, void **);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *, CUfunction, void **, void **);
CUresult cuLaunchCooperativeKernel(CUfunction, KERNEL, CUstream, void **);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, KERNEL, CUstream, void **);
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *, unsigned, unsigned);
CUresult cuLaunch(CUfunction);
CUresult cuLaunchGrid(CUfunction, int, int);
CUresult cuLaunchGridAsync(CUfunction, int, int, CUstream);
CUresult cuGraphLaunch(void *, CUstream);
CUresult cuGraphLaunch_ptsz(void *, CUstream);

struct launch {
    void *what;
    CUstream stream;
    unsigned blocks;
};

/* One function for each way in which arguments lie; `f` is the driver's function. */
#define WAY(name, symbol, ...) \
    static int name(void *f, struct launch l) { return ((__typeof__(&symbol))f)(__VA_ARGS__); }
#define BLOCKS l.blocks, 1, 1, 1, 1, 1, 0
static void *none;

WAY(as_kernel, cuLaunchKernel, l.what, BLOCKS, l.stream, &none, NULL)
WAY(as_cooperative, cuLaunchCooperativeKernel, l.what, BLOCKS, l.stream, &none)
WAY(as_config, cuLaunchKernelEx, &(CUlaunchConfig){{l.blocks, 1, 1}, {1, 1, 1}, 0, l.stream, NULL, 0},
    l.what, &none, NULL)
WAY(on_devices, cuLaunchCooperativeKernelMultiDevice,
    &(CUDA_LAUNCH_PARAMS){l.what, {l.blocks, 1, 1}, {1, 1, 1}, 0, l.stream, &none}, 1, 0)
WAY(as_one, cuLaunch, l.what)
WAY(as_grid, cuLaunchGrid, l.what, (int)l.blocks, 1)
WAY(as_grid_async, cuLaunchGridAsync, l.what, (int)l.blocks, 1, l.stream)
WAY(as_graph, cuGraphLaunch, l.what, l.stream)

#define SYMBOL(name, way) {#name, (void *)name, way}
static const struct launch_function {
    const char *name;
    void *linked;
    int (*call)(void *function, struct launch launch);
} launch_functions[] = {
    SYMBOL(cuLaunchKernel, as_kernel),
    SYMBOL(cuLaunchKernel_ptsz, as_kernel),
    SYMBOL(cuLaunchKernelEx, as_config),
    SYMBOL(cuLaunchKernelEx_ptsz, as_config),
    SYMBOL(cuLaunchCooperativeKernel, as_cooperative),
    SYMBOL(cuLaunchCooperativeKernel_ptsz, as_cooperative),
    SYMBOL(cuLaunchCooperativeKernelMultiDevice, on_devices),
    SYMBOL(cuLaunch, as_one),
    SYMBOL(cuLaunchGrid, as_grid),
    SYMBOL(cuLaunchGridAsync, as_grid_async),
    SYMBOL(cuGraphLaunch, as_graph),
    SYMBOL(cuGraphLaunch_ptsz, as_graph),
};

/* How the program finds them from now on: `link`, `dlsym` or `lookup`. */
static char road[16] = "link";

static void *find(const struct launch_function *function)
{
    if (strcmp(road, "link") == 0)
        return function->linked;
    if (strcmp(road, "dlsym") == 0)
        return dlsym(dlopen("libcuda.so.1", RTLD_NOW), function->name);
    char base[64];
    void *found = NULL;
    int status;
    strcpy(base, function->name);
    char *suffix = strstr(base, "_ptsz");
    if (suffix)
        *suffix = '\0';
    MUST(cuGetProcAddress_v2(base, &found, 12000,
                             suffix ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                    : CU_GET_PROC_ADDRESS_DEFAULT,
                             &status));
    return found;
}

/* One launch of a kernel each on two devices. */
static inline int launch_on_two(struct launch a, struct launch b)
{
    CUDA_LAUNCH_PARAMS list[] = {{a.what, {a.blocks, 1, 1}, {1, 1, 1}, 0, a.stream, &none},
                                 {b.what, {b.blocks, 1, 1}, {1, 1, 1}, 0, b.stream, &none}};
    return cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
}

/* Launches so many times; the first answer that is no success. */
static inline int launch_by(const char *name, struct launch launch, unsigned times)
{
    for (size_t i = 0; i < sizeof launch_functions / sizeof *launch_functions; i++) {
        const struct launch_function *function = &launch_functions[i];
        if (strcmp(function->name, name))
            continue;
        void *found = find(function);
        int result = found ? 0 : -1;
        while (times-- && result == 0)
            result = function->call(found, launch);
        return result;
    }
    SAY(" FAILED no launch function %s", name);
    exit(2);
}
