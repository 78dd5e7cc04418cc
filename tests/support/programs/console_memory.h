/* The console's commands for memory: linear, pitched, managed, host memory, and pools. */
#pragma once
#include "console.h"

static CUdeviceptr pointers[SLOTS];
static CUmemoryPool pools[SLOTS];
static void *hosts[SLOTS];

static int show_attributes(CUdeviceptr pointer_)
{
    for (int attribute = 0; attribute <= CU_POINTER_ATTRIBUTE_MOST; attribute++) {
        unsigned char value[64];
        unsigned long long word;
        memset(value, 0x5a, sizeof value);
        int result = CALL(cuPointerGetAttribute, value, attribute, pointer_);
        memcpy(&word, value, sizeof word);
        switch (attribute) {
        /* Addresses, and numbers made of them: not the same in two runs. */
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            OUT("%d:%d:%s", attribute, result, pointer(word));
            break;
        default:
            OUT("%d:%d:%016llx", attribute, result, word);
        }
    }
    return 0;
}

/* Each group of commands passes on what it does not know. */
static int array_memory(char **a);

static int host_memory(char **a)
{
    void **host = a[1] ? &SLOT(hosts, a[1]) : NULL;
    if (IS("host"))
        return CALL(cuMemHostAlloc, host, size(a[2]), (unsigned)NUMBER(3, 0));
    if (IS("host_plain"))
        return CALL(cuMemAllocHost_v2, host, size(a[2]));
    if (IS("register")) {
        *host = aligned_alloc(4096, size(a[2]));
        return CALL(cuMemHostRegister_v2, *host, size(a[2]), (unsigned)NUMBER(3, 0));
    }
    if (IS("unregister"))
        return CALL(cuMemHostUnregister, *host);
    if (IS("free_host"))
        return CALL(cuMemFreeHost, *host);
    return array_memory(a);
}

static int pool_memory(char **a)
{
    CUdeviceptr *address = a[1] ? &SLOT(pointers, a[1]) : NULL;
    CUmemoryPool *pool = a[1] ? &SLOT(pools, a[1]) : NULL;
    if (IS("async"))
        ANSWER(CALL(cuMemAllocAsync, address, size(a[2]), STREAM(3)), "%s", pointer(*address));
    if (IS("from_pool"))
        ANSWER(CALL(cuMemAllocFromPoolAsync, address, size(a[2]), SLOT(pools, a[3]), STREAM(4)), "%s",
               pointer(*address));
    if (IS("free_async"))
        return CALL(cuMemFreeAsync, *address, STREAM(2));
    if (IS("pool")) {
        CUmemPoolProps properties = pool_on(NUMBER(2, 0));
        ANSWER(CALL(cuMemPoolCreate, pool, &properties), "%s", POINTER(*pool));
    }
    if (IS("default_pool"))
        ANSWER(CALL(cuDeviceGetDefaultMemPool, pool, NUMBER(2, 0)), "%s", POINTER(*pool));
    if (IS("current_pool"))
        ANSWER(CALL(cuDeviceGetMemPool, pool, NUMBER(2, 0)), "%s", POINTER(*pool));
    if (IS("use_pool"))
        return CALL(cuDeviceSetMemPool, NUMBER(2, 0), *pool);
    if (IS("destroy_pool"))
        return CALL(cuMemPoolDestroy, *pool);
    if (IS("trim"))
        return CALL(cuMemPoolTrimTo, *pool, size(a[2]));
    if (IS("set") || IS("get")) {
        unsigned long long value = IS("get") ? UNTOUCHED : size(a[3]);
        int attribute = atoi(a[2]);
        int result = IS("get") ? CALL(cuMemPoolGetAttribute, *pool, attribute, &value)
                               : CALL(cuMemPoolSetAttribute, *pool, attribute, &value);
        /* The first three are ints, which leave the other half alone. */
        ANSWER(result, "%d:%llu", attribute,
               attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? (unsigned)value
                                                                              : value);
    }
    if (IS("access")) {
        CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, atoi(a[2])},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        int flags = -1, set = CALL(cuMemPoolSetAccess, *pool, &access, 1);
        OUT("set=%d", set);
        ANSWER(CALL(cuMemPoolGetAccess, &flags, *pool, &access.location), "flags=%d", flags);
    }
    return host_memory(a);
}

static int memory(char **a)
{
    CUdeviceptr *address = a[1] ? &SLOT(pointers, a[1]) : NULL;
    if (IS("alloc"))
        ANSWER(CALL(cuMemAlloc_v2, address, size(a[2])), "%s", pointer(*address));
    if (IS("managed"))
        ANSWER(CALL(cuMemAllocManaged, address, size(a[2]), (unsigned)size(a[3])), "%s",
               pointer(*address));
    if (IS("pitch")) {
        size_t pitch = UNTOUCHED;
        ANSWER(CALL(cuMemAllocPitch_v2, address, &pitch, size(a[2]), size(a[3]), (unsigned)size(a[4])),
               "%s pitch=%zu", pointer(*address), pitch);
    }
    if (IS("pitch_v1")) { /* only the linker and dlsym find the forms of CUDA 3.1 */
        unsigned narrow = 0, pitch = (unsigned)UNTOUCHED;
        int result = CALL(cuMemAllocPitch, &narrow, &pitch, (unsigned)size(a[2]),
                          (unsigned)size(a[3]), (unsigned)size(a[4]));
        *address = narrow;
        ANSWER(result, "%s pitch=%u", pointer(narrow), pitch);
    }
    if (IS("free"))
        return CALL(cuMemFree_v2, *address);
    if (IS("free_v1"))
        return CALL(cuMemFree, (unsigned)*address);
    if (IS("fill"))
        return CALL(cuMemsetD8_v2, *address, 1, size(a[2]));
    if (IS("attributes"))
        return show_attributes(*address);
    if (IS("is_managed")) { /* by the function that returns several attributes */
        int attribute = CU_POINTER_ATTRIBUTE_IS_MANAGED;
        unsigned char is_managed = 99;
        int result = CALL(cuPointerGetAttributes, 1, &attribute, &(void *){&is_managed}, *address);
        ANSWER(result, "%d", is_managed);
    }
    if (IS("on_device"))
        ANSWER(CALL(cuMemHostGetDevicePointer_v2, address, SLOT(hosts, a[1]), 0), "same=%d",
               *address == (CUdeviceptr)(uintptr_t)SLOT(hosts, a[1]));
    if (IS("info")) {
        size_t free = UNTOUCHED, total = UNTOUCHED;
        ANSWER(CALL(cuMemGetInfo_v2, &free, &total), "free=%zu total=%zu", free, total);
    }
    if (IS("total")) {
        size_t bytes = UNTOUCHED;
        ANSWER(CALL(cuDeviceTotalMem_v2, &bytes, NUMBER(1, 0)), "total=%zu", bytes);
    }
    return pool_memory(a);
}
