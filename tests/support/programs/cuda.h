/* The part of the CUDA driver API that the tests' programs call. NVIDIA's headers are not needed, and
 * every function has its symbol's name: what cuda.h calls cuMemAlloc is cuMemAlloc_v2 here, as in the
 * library file. All handles have one type, so that one table can hold any of them.
 *
 * A program that must start although its driver lacks some of these functions defines DRIVER_API as
 * a weak attribute before it includes this file. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifndef DRIVER_API
#define DRIVER_API
#endif

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct handle *handle;
typedef handle CUcontext, CUmodule, CUfunction, CUstream, CUevent, CUgraph, CUgraphNode, CUgraphExec,
    CUmemoryPool, CUlibrary, CUkernel;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
};

/* Initialisation, devices, contexts. */
DRIVER_API CUresult cuInit(unsigned flags);
DRIVER_API CUresult cuDriverGetVersion(int *version);
DRIVER_API CUresult cuDeviceGetCount(int *count);
DRIVER_API CUresult cuDeviceGet(CUdevice *device, int ordinal);
DRIVER_API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device); /* 32 bits, as in CUDA 3.1 */
DRIVER_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
DRIVER_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
DRIVER_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
DRIVER_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
DRIVER_API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
DRIVER_API CUresult cuCtxCreate_v3(CUcontext *context, void *affinities, int count, unsigned flags,
                                   CUdevice device);
DRIVER_API CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags,
                                   CUdevice device);
DRIVER_API CUresult cuCtxDestroy_v2(CUcontext context);
DRIVER_API CUresult cuCtxGetCurrent(CUcontext *context);
DRIVER_API CUresult cuCtxSetCurrent(CUcontext context);
DRIVER_API CUresult cuCtxPushCurrent_v2(CUcontext context);
DRIVER_API CUresult cuCtxPopCurrent_v2(CUcontext *context);
DRIVER_API CUresult cuCtxSynchronize(void);
DRIVER_API CUresult cuCtxSetLimit(int limit, size_t value);
DRIVER_API CUresult cuCtxGetLimit(size_t *value, int limit);

/* Green contexts. */
typedef handle CUgreenCtx, CUdevResourceDesc;

enum { CU_DEV_RESOURCE_TYPE_SM = 1, CU_GREEN_CTX_DEFAULT_STREAM = 1 };

typedef struct {
    int type;
    unsigned char padding[92];
    unsigned sm_count, smallest, alignment, flags, domain;
    unsigned char other[20];
    void *next;
} CUdevResource;

DRIVER_API CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type);
DRIVER_API CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups,
                                                const CUdevResource *input, CUdevResource *remainder,
                                                unsigned flags, unsigned least);
DRIVER_API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *descriptor, CUdevResource *resources,
                                              unsigned count);
DRIVER_API CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc descriptor, CUdevice device,
                                     unsigned flags);
DRIVER_API CUresult cuGreenCtxDestroy(CUgreenCtx green);
DRIVER_API CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
DRIVER_API CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, int type);
DRIVER_API CUresult cuGreenCtxStreamCreate(handle *stream, CUgreenCtx green, unsigned flags,
                                           int priority);

/* Lookup. */
enum {
    CU_GET_PROC_ADDRESS_DEFAULT = 0,
    CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
};

DRIVER_API CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
DRIVER_API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                        uint64_t flags, int *status);

/* Linear, pitched, managed and host memory. */
enum { CU_MEM_ATTACH_GLOBAL = 1, CU_MEM_ATTACH_HOST = 2 };
enum {
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
    CU_POINTER_ATTRIBUTE_MOST = 22,
};

DRIVER_API CUresult cuMemGetInfo(unsigned *free, unsigned *total); /* 32 bits, as in CUDA 3.1 */
DRIVER_API CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
DRIVER_API CUresult cuMemAlloc(unsigned *pointer, unsigned bytes); /* 32 bits, as in CUDA 3.1 */
DRIVER_API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
DRIVER_API CUresult cuMemFree(unsigned pointer); /* 32 bits, as in CUDA 3.1 */
DRIVER_API CUresult cuMemFree_v2(CUdeviceptr pointer);
DRIVER_API CUresult cuMemAllocPitch(unsigned *pointer, unsigned *pitch, unsigned width,
                                    unsigned height, unsigned element); /* 32 bits, as in CUDA 3.1 */
DRIVER_API CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width,
                                       size_t height, unsigned element);
DRIVER_API CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);
DRIVER_API CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t bytes);
DRIVER_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                         CUstream stream);
DRIVER_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
DRIVER_API CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);
DRIVER_API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
DRIVER_API CUresult cuMemFreeHost(void *pointer);
DRIVER_API CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags);
DRIVER_API CUresult cuMemHostUnregister(void *pointer);
DRIVER_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned flags);
DRIVER_API CUresult cuMemHostGetFlags(unsigned *flags, void *pointer);
DRIVER_API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer);
DRIVER_API CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data,
                                           CUdeviceptr pointer);

/* Arrays. */
typedef handle CUarray, CUmipmappedArray;

enum { CUDA_ARRAY3D_LAYERED = 1, CUDA_ARRAY3D_SURFACE_LDST = 2, CUDA_ARRAY3D_CUBEMAP = 4 };
enum {
    CU_AD_FORMAT_UNSIGNED_INT8 = 1,
    CU_AD_FORMAT_UNSIGNED_INT16 = 2,
    CU_AD_FORMAT_UNSIGNED_INT32 = 3,
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_ARRAY = 3 };

typedef struct { size_t width, height; unsigned format, channels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { unsigned width, height, format, channels; } CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct {
    size_t width, height, depth;
    unsigned format, channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;
typedef struct { unsigned width, height, depth, format, channels, flags; } CUDA_ARRAY3D_DESCRIPTOR_v1;
typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    int srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
    int dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

DRIVER_API CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor);
DRIVER_API CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor);
DRIVER_API CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor);
DRIVER_API CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
DRIVER_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array);
DRIVER_API CUresult cuArrayDestroy(CUarray array);
DRIVER_API CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
                                           const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
DRIVER_API CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned level);
DRIVER_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap);
DRIVER_API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);

/* Memory pools. */
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum {
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
};

typedef struct { int type, id; } CUmemLocation;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct {
    int allocType, handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

DRIVER_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
DRIVER_API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
DRIVER_API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
DRIVER_API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
DRIVER_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                            CUstream stream);
DRIVER_API CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
DRIVER_API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties);
DRIVER_API CUresult cuMemPoolDestroy(CUmemoryPool pool);
DRIVER_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes);
DRIVER_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
DRIVER_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
DRIVER_API CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location);
DRIVER_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access,
                                       size_t count);

/* A pool of pinned memory on a device, as most programs create it. */
static inline CUmemPoolProps pool_on(CUdevice device)
{
    return (CUmemPoolProps){
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

DRIVER_API CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, int type,
                                                     unsigned long long flags);
DRIVER_API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type,
                                                       unsigned long long flags);
typedef struct { unsigned char reserved[64]; } CUmemPoolPtrExportData;
DRIVER_API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer);
DRIVER_API CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool,
                                           CUmemPoolPtrExportData *data);

/* Virtual memory. */
enum {
    CU_MEM_LOCATION_TYPE_HOST = 2,
    CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
};
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

DRIVER_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *,
                                                  int option);
DRIVER_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *, unsigned long long flags);
DRIVER_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
DRIVER_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address);
DRIVER_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *,
                                                           CUmemGenericAllocationHandle handle);
DRIVER_API CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                                 int type, unsigned long long flags);
DRIVER_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                   void *shareable, int type);
DRIVER_API CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                        CUdeviceptr wanted, unsigned long long flags);
DRIVER_API CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes);
DRIVER_API CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags);
DRIVER_API CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes);
DRIVER_API CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                                   size_t count);

/* Sparse arrays and multicast objects. */
typedef struct {
    int resourceType;
    union { CUarray array; } resource;
    int subresourceType;
    union {
        struct {
            unsigned level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
        } sparseLevel;
        struct { unsigned layer; unsigned long long offset, size; } miptail;
    } subresource;
    int memOperationType, memHandleType;
    struct { CUmemGenericAllocationHandle memHandle; } memHandle;
    unsigned long long offset;
    unsigned deviceBitMask, flags, reserved[2];
} CUarrayMapInfo;
typedef struct { unsigned numDevices; size_t size; unsigned long long handleTypes, flags; } CUmulticastObjectProp;
#define CU_RESOURCE_TYPE_ARRAY 0
#define CU_MEM_OPERATION_TYPE_MAP 1
#define CU_MEM_OPERATION_TYPE_UNMAP 2
DRIVER_API CUresult cuMemMapArrayAsync(CUarrayMapInfo *infos, unsigned count, CUstream stream);
DRIVER_API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                      const CUmulticastObjectProp *properties);
DRIVER_API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device);
DRIVER_API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                       CUmemGenericAllocationHandle memory, size_t memory_offset,
                                       size_t bytes, unsigned long long flags);
DRIVER_API CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                          size_t offset, CUmemGenericAllocationHandle memory,
                                          size_t memory_offset, size_t bytes, unsigned long long flags);
DRIVER_API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                                        CUdeviceptr pointer, size_t bytes, unsigned long long flags);
DRIVER_API CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                           size_t offset, CUdeviceptr pointer, size_t bytes,
                                           unsigned long long flags);
DRIVER_API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device,
                                      size_t offset, size_t bytes);
DRIVER_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

/* Memory of other processes and other APIs. */
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1, CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1 };
typedef struct { unsigned char reserved[64]; } CUipcMemHandle;
typedef struct {
    int type;
    union { int fd; void *win32[2]; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct {
    unsigned long long offset, size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

DRIVER_API CUresult cuIpcGetMemHandle(CUipcMemHandle *ipc, CUdeviceptr pointer);
DRIVER_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle ipc, unsigned flags);
DRIVER_API CUresult cuIpcCloseMemHandle(CUdeviceptr pointer);
DRIVER_API CUresult cuImportExternalMemory(handle *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *);
DRIVER_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, handle memory,
                                                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *);
DRIVER_API CUresult cuDestroyExternalMemory(handle memory);

/* Streams and events. */
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

DRIVER_API CUresult cuStreamCreate(CUstream *stream, unsigned flags);
DRIVER_API CUresult cuStreamDestroy_v2(CUstream stream);
DRIVER_API CUresult cuStreamGetId(CUstream stream, unsigned long long *id);
DRIVER_API CUresult cuStreamSynchronize(CUstream stream);
DRIVER_API CUresult cuStreamSynchronize_ptsz(CUstream stream);
DRIVER_API CUresult cuStreamQuery(CUstream stream);
DRIVER_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
DRIVER_API CUresult cuEventCreate(CUevent *event, unsigned flags);
DRIVER_API CUresult cuEventDestroy_v2(CUevent event);
DRIVER_API CUresult cuEventRecord(CUevent event, CUstream stream);
DRIVER_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
DRIVER_API CUresult cuEventSynchronize(CUevent event);
DRIVER_API CUresult cuEventQuery(CUevent event);
DRIVER_API CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);

/* Modules and launches. */
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

/* The numbers of blocks, threads in a block, and bytes of shared memory. */
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared

DRIVER_API CUresult cuModuleLoadData(CUmodule *module, const void *image);
DRIVER_API CUresult cuModuleUnload(CUmodule module);
DRIVER_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
DRIVER_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module,
                                         const char *name);
DRIVER_API CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options,
                                      void **jit_values, unsigned jit_count, int *options,
                                      void **values, unsigned count);
DRIVER_API CUresult cuLibraryUnload(CUlibrary library);
DRIVER_API CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
DRIVER_API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
DRIVER_API CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library,
                                       const char *name);
DRIVER_API CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
DRIVER_API CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z);
DRIVER_API CUresult cuLaunchKernel(CUfunction function, GRID, CUstream stream, void **parameters,
                                   void **extra);
DRIVER_API CUresult cuLaunchKernel_ptsz(CUfunction function, GRID, CUstream stream, void **parameters,
                                        void **extra);
DRIVER_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                     void **parameters, void **extra);
DRIVER_API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                          void **parameters, void **extra);
DRIVER_API CUresult cuLaunchCooperativeKernel(CUfunction function, GRID, CUstream stream,
                                              void **parameters);
DRIVER_API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, GRID, CUstream stream,
                                                   void **parameters);
DRIVER_API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count,
                                                         unsigned flags);
DRIVER_API CUresult cuLaunch(CUfunction function);
DRIVER_API CUresult cuLaunchGrid(CUfunction function, int width, int height);
DRIVER_API CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream);
DRIVER_API CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data);

/* Captures and graphs. */
DRIVER_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
DRIVER_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
DRIVER_API CUresult cuStreamIsCapturing(CUstream stream, int *status);
DRIVER_API CUresult cuThreadExchangeStreamCaptureMode(int *mode);
DRIVER_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
DRIVER_API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
DRIVER_API CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
typedef struct {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    CUfunction func;
    unsigned grid[3], block[3], shared;
    void **kernelParams, **extra;
    handle kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

DRIVER_API CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
DRIVER_API CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                            size_t count, const CUDA_KERNEL_NODE_PARAMS *params);
DRIVER_API CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                           size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params);
DRIVER_API CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                          size_t count, CUdeviceptr pointer);
DRIVER_API CUresult cuGraphUpload(CUgraphExec executable, CUstream stream);
DRIVER_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value);
DRIVER_API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value);
DRIVER_API CUresult cuDeviceGraphMemTrim(CUdevice device);
DRIVER_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph,
                                                unsigned long long flags);
enum { CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2 };
typedef struct {
    unsigned long long flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int outcome;
} CUDA_GRAPH_INSTANTIATE_PARAMS;
DRIVER_API CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params);
DRIVER_API CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);
DRIVER_API CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream);
DRIVER_API CUresult cuGraphExecDestroy(CUgraphExec executable);
DRIVER_API CUresult cuGraphDestroy(CUgraph graph);
