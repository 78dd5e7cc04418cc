// build: -shared -fPIC
/* A driver, or with -DNVML an NVML, that needs next to no stack: one card of 16 GiB, whose memory is always
 * there, and a context that is always current. */


#define CARD "GPU-00000000-0000-0000-0000-000000000001"

static const unsigned char uuid[16] = {[15] = 1};
static const unsigned long long total = 16ull << 30;

#ifdef NVML
#include "nvml.h"

nvmlReturn_t nvmlInit_v2(void)
{
    return 0;
}

nvmlReturn_t nvmlShutdown(void)
{
    return 0;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return 0;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)uuid;
    return index ? 2 : 0;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length)
{
    (void)device, (void)length;
    for (unsigned at = 0; at < sizeof CARD; at++)
        text[at] = CARD[at];
    return 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    (void)device;
    memory->total = memory->free = total;
    memory->used = 0;
    return 0;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessV2 *list)
{
    (void)device, (void)list;
    *count = 0;
    return 0;
}
#else
#include "cuda.h"

static CUdeviceptr next = 1 << 20;

CUresult cuInit(unsigned flags)
{
    return (CUresult)flags;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(unsigned char *to, CUdevice device)
{
    for (int at = 0; at < 16; at++)
        to[at] = uuid[at];
    return device;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = total;
    return device;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = (CUcontext)&next;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    *pointer = __atomic_fetch_add(&next, bytes, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return pointer ? CUDA_SUCCESS : 1;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *all)
{
    *free = *all = total;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra)
{
    (void)function, (void)x, (void)y, (void)z, (void)block_x, (void)block_y, (void)block_z, (void)shared;
    (void)stream, (void)parameters, (void)extra;
    return CUDA_SUCCESS;
}
#endif
