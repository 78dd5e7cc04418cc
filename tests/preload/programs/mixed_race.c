// build: -lcuda -pthread
/* Four threads that allocate and free memory of all kinds on two cards, up to the limit. argv[1] is the
 * number of rounds of each thread, argv[2] the seed. They start after a line of input. At the end everything
 * is freed, and the program waits for the end of its input. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cuda.h"
#include "trace.h"

enum { THREADS = 4, HELD = 8, CARDS = 2, GRANULE = 2 << 20 };

enum kind {
    LINEAR, PITCHED, MANAGED, ARRAY, MIPMAP, ASYNC, POOL, PHYSICAL, EXPORTED, EXTERNAL, BUFFER, GRAPH,
    OUTLIVING, CONTEXT, KINDS
};

/* Something that is allocated. */
struct object {
    int exists, card;
    enum kind kind;
    CUdeviceptr address;
    size_t bytes;
    CUarray array;
    CUmipmappedArray mipmap;
    CUmemGenericAllocationHandle physical;
    handle external;
    CUgraph graph;
    CUgraphExec executable;
    CUcontext context;
};

struct thread {
    unsigned seed;
    CUstream streams[CARDS];
    CUmemoryPool pools[CARDS];
    struct object held[HELD];
};

static long rounds, granted;
static CUcontext contexts[CARDS];

static unsigned below(struct thread *me, unsigned limit) { return (unsigned)rand_r(&me->seed) % limit; }

static int create_array(struct object *o)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.width = 4096, .height = o->bytes / 4096, .channels = 1,
                                     .format = CU_AD_FORMAT_UNSIGNED_INT8};
    CUDA_ARRAY_DESCRIPTOR plane = {shape.width, shape.height, shape.format, shape.channels};
    return o->kind == ARRAY ? cuArrayCreate_v2(&o->array, &plane)
                            : cuMipmappedArrayCreate(&o->mipmap, &shape, 2);
}

static int create_physical(struct object *o)
{
    int fd, type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = o->kind == EXPORTED ? type : 0,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, o->card}};
    o->bytes = (o->bytes + GRANULE - 1) / GRANULE * GRANULE;
    int result = cuMemCreate(&o->physical, o->bytes, &properties, 0);
    if (result)
        return result;
    MUST(cuMemAddressReserve(&o->address, o->bytes, 0, 0, 0));
    MUST(cuMemMap(o->address, o->bytes, 0, o->physical, 0));
    if (o->kind == EXPORTED) {
        CUmemGenericAllocationHandle again;
        MUST(cuMemExportToShareableHandle(&fd, o->physical, type, 0));
        MUST(cuMemImportFromShareableHandle(&again, (void *)(uintptr_t)fd, type));
        MUST(close(fd));
        MUST(cuMemRelease(again));
    }
    /* From here on the mapping keeps it. */
    MUST(cuMemRelease(o->physical));
    return 0;
}

static int import_external(struct object *o)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        .handle.fd = memfd_create("another API", MFD_CLOEXEC),
        .size = o->bytes};
    MUST(ftruncate(description.handle.fd, (off_t)o->bytes));
    int result = cuImportExternalMemory(&o->external, &description);
    if (result) {
        close(description.handle.fd);
        return result;
    }
    if (o->kind == BUFFER) {
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = {.size = o->bytes};
        MUST(cuExternalMemoryGetMappedBuffer(&o->address, o->external, &all));
        MUST(cuDestroyExternalMemory(o->external));
    }
    return 0;
}

static int launch_graph(struct object *o, CUstream stream)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = pool_on(o->card), .bytesize = o->bytes};
    CUgraphNode allocation, end;
    MUST(cuGraphCreate(&o->graph, 0));
    MUST(cuGraphAddMemAllocNode(&allocation, o->graph, NULL, 0, &params));
    o->address = params.dptr;
    if (o->kind == GRAPH)
        MUST(cuGraphAddMemFreeNode(&end, o->graph, &allocation, 1, o->address));
    MUST(cuGraphInstantiateWithFlags(&o->executable, o->graph, 0));
    int result = cuGraphLaunch(o->executable, stream);
    /* What outlives its graph is freed by its address. */
    if (result || o->kind == OUTLIVING) {
        MUST(cuGraphExecDestroy(o->executable));
        MUST(cuGraphDestroy(o->graph));
    }
    return result;
}

static int create_context(struct object *o)
{
    int result = cuCtxCreate_v2(&o->context, 0, o->card);
    if (result)
        return result;
    result = cuMemAlloc_v2(&o->address, o->bytes);
    if (result)
        MUST(cuCtxDestroy_v2(o->context));
    MUST(cuCtxSetCurrent(contexts[o->card]));
    return result;
}

static int allocate(struct thread *me, struct object *o)
{
    size_t pitch;
    switch (o->kind) {
    case LINEAR: return cuMemAlloc_v2(&o->address, o->bytes);
    case PITCHED: return cuMemAllocPitch_v2(&o->address, &pitch, 1000, o->bytes / 1024, 4);
    case MANAGED: return cuMemAllocManaged(&o->address, o->bytes, CU_MEM_ATTACH_GLOBAL);
    case ARRAY:
    case MIPMAP: return create_array(o);
    case ASYNC: return cuMemAllocAsync(&o->address, o->bytes, me->streams[o->card]);
    case POOL:
        return cuMemAllocFromPoolAsync(&o->address, o->bytes, me->pools[o->card], me->streams[o->card]);
    case PHYSICAL:
    case EXPORTED: return create_physical(o);
    case EXTERNAL:
    case BUFFER: return import_external(o);
    case GRAPH:
    case OUTLIVING: return launch_graph(o, me->streams[o->card]);
    default: return create_context(o);
    }
}

static void release(struct thread *me, struct object *o)
{
    switch (o->kind) {
    case ARRAY: MUST(cuArrayDestroy(o->array)); break;
    case MIPMAP: MUST(cuMipmappedArrayDestroy(o->mipmap)); break;
    case ASYNC:
    case POOL: MUST(cuMemFreeAsync(o->address, me->streams[o->card])); break;
    case PHYSICAL:
    case EXPORTED:
        MUST(cuMemUnmap(o->address, o->bytes));
        MUST(cuMemAddressFree(o->address, o->bytes));
        break;
    case EXTERNAL: MUST(cuDestroyExternalMemory(o->external)); break;
    case GRAPH:
        MUST(cuGraphExecDestroy(o->executable));
        MUST(cuGraphDestroy(o->graph));
        break;
    case CONTEXT: MUST(cuCtxDestroy_v2(o->context)); break;
    default: MUST(cuMemFree_v2(o->address));
    }
    o->exists = 0;
}

static void step(struct thread *me)
{
    struct object *o = &me->held[below(me, HELD)];
    if (o->exists) {
        MUST(cuCtxSetCurrent(contexts[o->card]));
        release(me, o);
        if (below(me, 4) == 0)
            MUST(cuStreamSynchronize(me->streams[o->card]));
        return;
    }
    *o = (struct object){.card = (int)below(me, CARDS), .kind = below(me, KINDS)};
    o->bytes = (below(me, 2) ? 1 + below(me, 64) : 1 + below(me, 8)) * MiB;
    MUST(cuCtxSetCurrent(contexts[o->card]));
    int result = allocate(me, o);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        if (below(me, 8) == 0)
            MUST(cuDeviceGraphMemTrim(o->card));
        return;
    }
    MUST(result);
    o->exists = 1;
    __atomic_add_fetch(&granted, 1, __ATOMIC_RELAXED);
}

static void *thread(void *seed)
{
    struct thread *me = calloc(1, sizeof *me);
    me->seed = (unsigned)(uintptr_t)seed;
    for (int card = 0; card < CARDS; card++) {
        CUmemPoolProps properties = pool_on(card);
        MUST(cuCtxSetCurrent(contexts[card]));
        MUST(cuStreamCreate(&me->streams[card], CU_STREAM_NON_BLOCKING));
        MUST(cuMemPoolCreate(&me->pools[card], &properties));
    }
    for (long round = 0; round < rounds; round++)
        step(me);
    for (int i = 0; i < HELD; i++)
        if (me->held[i].exists) {
            MUST(cuCtxSetCurrent(contexts[me->held[i].card]));
            release(me, &me->held[i]);
        }
    for (int card = 0; card < CARDS; card++) {
        MUST(cuCtxSetCurrent(contexts[card]));
        MUST(cuStreamSynchronize(me->streams[card]));
        MUST(cuMemPoolDestroy(me->pools[card]));
    }
    return NULL;
}

static void wait_for_line(void)
{
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        exit(0);
}

int main(int argc, char **argv)
{
    pthread_t ids[THREADS];
    rounds = atol(argv[1]);
    uintptr_t seed = strtoull(argv[argc - 1], NULL, 10) * THREADS;
    for (int card = 0; card < CARDS; card++)
        contexts[card] = use_device(card);
    SAY("ready");
    wait_for_line();
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, thread, (void *)(seed + (uintptr_t)i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    for (int card = 0; card < CARDS; card++) {
        CUmemoryPool pool;
        MUST(cuCtxSetCurrent(contexts[card]));
        MUST(cuCtxSynchronize());
        MUST(cuDeviceGetDefaultMemPool(&pool, card));
        MUST(cuMemPoolTrimTo(pool, 0));
        MUST(cuDeviceGraphMemTrim(card));
    }
    SAY("granted %ld", granted);
    wait_for_line();
    return 0;
}
