// build: -shared -fPIC -Wl,-soname,libcuda.so.1
/* An old driver, without cuMemAllocAsync, cuGetProcAddress, cuDeviceTotalMem_v2 and others. */
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
