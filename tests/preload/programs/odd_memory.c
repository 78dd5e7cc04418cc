// build: -lcuda
/* Requests every kind of memory with arguments that the driver refuses. argv[1] is the state of the
 * program: "loaded", before cuInit; "initialised", without a context; or "ready". */
#include <string.h>
#include "cuda.h"
#include "trace.h"

#define MANY ((size_t)1 << 62)

static void pitched_and_managed(void)
{
    CUdeviceptr p = UNTOUCHED;
    size_t pitch = UNTOUCHED;
    unsigned narrow = (unsigned)UNTOUCHED, narrow_pitch = (unsigned)UNTOUCHED;
    TRACE(cuMemAllocPitch_v2(NULL, &pitch, 64, 64, 4), "pitch=%s", bytes(pitch));
    TRACE(cuMemAllocPitch_v2(&p, NULL, 64, 64, 4), "pointer=%s", pointer(p));
    TRACE(cuMemAllocPitch_v2(NULL, NULL, 0, 0, 0));
    TRACE(cuMemAllocPitch_v2(&p, &pitch, 0, 64, 4), "%s pitch=%s", pointer(p), bytes(pitch));
    TRACE(cuMemAllocPitch_v2(&p, &pitch, 64, 0, 4), "%s pitch=%s", pointer(p), bytes(pitch));
    TRACE(cuMemAllocPitch_v2(&p, &pitch, 64, 64, 0), "%s pitch=%s", pointer(p), bytes(pitch));
    TRACE(cuMemAllocPitch_v2(&p, &pitch, 64, 64, 5), "%s pitch=%s", pointer(p), bytes(pitch));
    TRACE(cuMemAllocPitch(NULL, &narrow_pitch, 64, 64, 4), "pitch=%s", bytes(narrow_pitch));
    TRACE(cuMemAllocPitch(&narrow, NULL, 64, 64, 4), "pointer=%s", bytes(narrow));
    TRACE(cuMemAllocPitch(&narrow, &narrow_pitch, 0, 64, 4), "pitch=%s", bytes(narrow_pitch));
    TRACE(cuMemAllocPitch(&narrow, &narrow_pitch, 64, 64, 3), "pitch=%s", bytes(narrow_pitch));
    TRACE(cuMemAllocManaged(NULL, MiB, CU_MEM_ATTACH_GLOBAL));
    TRACE(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL), "%s", pointer(p));
    TRACE(cuMemAllocManaged(&p, MiB, 0), "%s", pointer(p));
    TRACE(cuMemAllocManaged(&p, MiB, 3), "%s", pointer(p));
    TRACE(cuMemAllocManaged(&p, MiB, ~0u), "%s", pointer(p));
}

/* More than any card has, and sizes whose product or sum overflows: out of memory or an invalid value,
 * the same as from the driver. */
static void far_too_large(void)
{
    CUdeviceptr p = UNTOUCHED;
    size_t pitch = UNTOUCHED;
    TRACE(cuMemAllocPitch_v2(&p, &pitch, ~(size_t)0, 64, 4), "%s", pointer(p));
    TRACE(cuMemAllocPitch_v2(&p, &pitch, MANY, 64, 4), "%s", pointer(p));
    TRACE(cuMemAllocPitch_v2(&p, &pitch, 64, ~(size_t)0, 4), "%s", pointer(p));
}

static void host(void)
{
    void *h = NULL;
    CUdeviceptr p = UNTOUCHED;
    static char own[8192] __attribute__((aligned(4096)));
    TRACE(cuMemHostAlloc(NULL, MiB, 0));
    TRACE(cuMemHostAlloc(&h, 0, 0), "%s", POINTER(h));
    TRACE(cuMemHostAlloc(&h, MiB, ~0u), "%s", POINTER(h));
    TRACE(cuMemAllocHost_v2(NULL, MiB));
    TRACE(cuMemAllocHost_v2(&h, 0), "%s", POINTER(h));
    TRACE(cuMemHostRegister_v2(NULL, MiB, 0));
    TRACE(cuMemHostRegister_v2(own, 0, 0));
    TRACE(cuMemHostRegister_v2(own, sizeof own, ~0u));
    TRACE(cuMemHostUnregister(own));
    TRACE(cuMemFreeHost(own));
    TRACE(cuMemFreeHost(NULL));
    TRACE(cuMemHostGetDevicePointer_v2(&p, own, 0), "%s", pointer(p));
}

static void pools(void)
{
    CUdeviceptr p = UNTOUCHED;
    CUmemoryPool pool = NULL;
    CUmemPoolProps good = pool_on(0), nowhere = pool_on(99), nothing = {0};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 99}, 3};
    unsigned long long value = UNTOUCHED;
    TRACE(cuMemAllocAsync(NULL, MiB, NULL));
    TRACE(cuMemAllocAsync(&p, 0, NULL), "%s", pointer(p));
    TRACE(cuMemAllocFromPoolAsync(NULL, MiB, NULL, NULL));
    TRACE(cuMemAllocFromPoolAsync(&p, MiB, NULL, NULL), "%s", pointer(p));
    TRACE(cuMemFreeAsync(0, NULL));
    TRACE(cuMemFreeAsync(0xdead000, NULL));
    TRACE(cuMemFreeAsync((CUdeviceptr)(uintptr_t)&p, NULL));
    TRACE(cuMemPoolCreate(NULL, &good));
    TRACE(cuMemPoolCreate(&pool, NULL), "%s", POINTER(pool));
    TRACE(cuMemPoolCreate(&pool, &nowhere), "%s", POINTER(pool));
    TRACE(cuMemPoolCreate(&pool, &nothing), "%s", POINTER(pool));
    TRACE(cuMemPoolDestroy(NULL));
    TRACE(cuMemPoolTrimTo(NULL, 0));
    TRACE(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    TRACE(cuMemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    TRACE(cuMemPoolSetAccess(NULL, &access, 1));
    TRACE(cuDeviceGetDefaultMemPool(NULL, 0));
    TRACE(cuDeviceGetDefaultMemPool(&pool, 99), "%s", POINTER(pool));
    TRACE(cuDeviceGetMemPool(&pool, -1), "%s", POINTER(pool));
    TRACE(cuDeviceSetMemPool(0, NULL));
    TRACE(cuDeviceSetMemPool(99, NULL));
}

/* Errors that need a pool. */
static void a_pool(void)
{
    CUdeviceptr p = UNTOUCHED;
    CUmemoryPool pool = NULL, made = NULL;
    CUmemPoolProps good = pool_on(0);
    unsigned long long value = 1;
    TRACE(cuDeviceGetDefaultMemPool(&pool, 0));
    TRACE(cuMemAllocFromPoolAsync(&p, 0, pool, NULL), "%s", pointer(p));
    TRACE(cuMemAllocFromPoolAsync(NULL, MiB, pool, NULL));
    TRACE(cuMemPoolDestroy(pool));
    TRACE(cuMemPoolGetAttribute(pool, 0, &value), "%s", bytes(value));
    TRACE(cuMemPoolGetAttribute(pool, 99, &value), "%s", bytes(value));
    TRACE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
    TRACE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    TRACE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
    TRACE(cuMemPoolCreate(&made, &good), "%s", POINTER(made));
    TRACE(cuMemAllocFromPoolAsync(&p, MiB, made, NULL), "%s", pointer(p));
    TRACE(cuMemFreeAsync(p + 512, NULL));
    TRACE(cuMemFreeAsync(p, NULL));
    TRACE(cuMemFreeAsync(p, NULL));
    TRACE(cuMemFree_v2(p));
    TRACE(cuStreamSynchronize(NULL));
    TRACE(cuMemPoolDestroy(made));
}

int main(int argc, char **argv)
{
    const char *stage = argv[argc - 1];
    if (strcmp(stage, "initialised") == 0)
        MUST(cuInit(0));
    if (strcmp(stage, "ready") == 0)
        use_device(0);
    pitched_and_managed();
    far_too_large();
    host();
    pools();
    if (strcmp(stage, "ready") == 0)
        a_pool();
    return 0;
}
