// build: -shared -fPIC -Wl,-soname,libcuda.so.1
/* A driver from before cuMemAllocAsync, cuGetProcAddress and cuDeviceTotalMem_v2, say. */
#include "cuda.h"

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 2020;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 0;
    return CUDA_SUCCESS;
}
