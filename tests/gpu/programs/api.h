/* The driver API as these programs call it, found by name while they run: a driver that is too old
 * for one of the functions still runs the others. */
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long CUdeviceptr;
typedef struct opaque *handle;

enum { OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600 };

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDevicePrimaryCtxRetain(handle *context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxCreate_v2(handle *context, unsigned flags, int device);
int cuCtxDestroy_v2(handle context);
int cuCtxSetCurrent(handle context);
int cuCtxSynchronize(void);
int cuStreamCreate(handle *stream, unsigned flags);
int cuStreamSynchronize(handle stream);
int cuStreamBeginCapture_v2(handle stream, int mode);
int cuStreamEndCapture(handle stream, handle *graph);
int cuEventCreate(handle *event, unsigned flags);
int cuEventRecord(handle event, handle stream);
int cuEventQuery(handle event);
int cuEventSynchronize(handle event);
int cuGraphInstantiateWithFlags(handle *executable, handle graph, unsigned long long flags);
int cuGraphLaunch(handle executable, handle stream);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
int cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);
int cuMemFree_v2(CUdeviceptr pointer);
int cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t bytes);
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
int cuMemFreeHost(void *pointer);
int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, handle stream);
int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, handle stream);
int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *pointer);
int cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, handle stream);
int cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, handle pool, handle stream);
int cuMemFreeAsync(CUdeviceptr pointer, handle stream);
int cuDeviceGetDefaultMemPool(handle *pool, int device);
int cuMemPoolCreate(handle *pool, const void *properties);
int cuMemPoolDestroy(handle pool);
int cuMemPoolTrimTo(handle pool, size_t keep);
int cuMemPoolGetAttribute(handle pool, int attribute, void *value);
int cuMemPoolSetAttribute(handle pool, int attribute, void *value);
int cuModuleLoadData(handle *module, const void *image);
int cuModuleGetFunction(handle *function, handle module, const char *name);
int cuLaunchKernel(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, handle stream, void **parameters, void **extra);
int cuLaunchCooperativeKernel(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, handle stream,
                              void **parameters);

/* CUlaunchConfig of CUDA 11.8 and later. */
typedef struct {
    unsigned grid[3], block[3], shared;
    handle stream;
    void *attributes;
    unsigned attribute_count;
} launch_config;

int cuLaunchKernelEx(const launch_config *config, handle function, void **parameters, void **extra);
int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

/* CUmemPoolProps of CUDA 11.2 and later: pinned memory of one device, no sharing. */
typedef struct {
    int allocation_type, handle_types, location_type, location_id;
    void *security;
    size_t maximum;
    unsigned char reserved[64];
} pool_properties;

/* The driver's own lookup, in its newer form where there is one: drivers before 12.0 have none. */
static inline int proc_address(void *driver, const char *name, void **function, int version,
                               uint64_t flags)
{
    int status;
    __typeof__(&cuGetProcAddress_v2) newer =
        (__typeof__(&cuGetProcAddress_v2))dlsym(driver, "cuGetProcAddress_v2");
    if (newer)
        return newer(name, function, version, flags, &status);
    __typeof__(&cuGetProcAddress) older =
        (__typeof__(&cuGetProcAddress))dlsym(driver, "cuGetProcAddress");
    return older ? older(name, function, version, flags) : NOT_FOUND;
}
