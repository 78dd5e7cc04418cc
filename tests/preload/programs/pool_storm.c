// build: -lcuda -pthread
/* Eight threads allocate, free, wait and trim at random, with three pools, cuMemAlloc and several streams;
 * refusals are allowed, other errors are not. argv[1] is the number of rounds, argv[2] the seed. It prints
 * "at rest" while it holds the rest, and after a line of input "empty" when all is freed. */
#include <pthread.h>
#include "cuda.h"
#include "trace.h"

enum { THREADS = 8, HELD = 8, STREAMS = 4, POOLS = 3 };

static CUcontext context;
static CUstream streams[STREAMS];
static CUmemoryPool pools[POOLS];
static CUdeviceptr held[THREADS * HELD];
static long rounds, granted;
static unsigned first_seed;

static int allocate(CUdeviceptr *place, unsigned *seed)
{
    unsigned most = rand_r(seed) % 4 ? 4 * MiB : 96 * MiB;
    /* The account counts in units of 512 bytes. */
    size_t asked = 512 * (1 + rand_r(seed) % (most / 512));
    CUstream stream = streams[rand_r(seed) % STREAMS];
    switch (rand_r(seed) % 8) {
    case 0:
        return cuMemAlloc_v2(place, asked);
    case 1:
    case 2:
    case 3:
        return cuMemAllocFromPoolAsync(place, asked, pools[rand_r(seed) % POOLS], stream);
    default:
        return cuMemAllocAsync(place, asked, stream);
    }
}

static void let_go(CUdeviceptr *place, unsigned *seed)
{
    if (rand_r(seed) % 4)
        MUST(cuMemFreeAsync(*place, streams[rand_r(seed) % STREAMS]));
    else
        MUST(cuMemFree_v2(*place));
    *place = 0;
}

static void tidy(unsigned *seed)
{
    size_t threshold = rand_r(seed) % 2 ? 0 : 256 * MiB;
    switch (rand_r(seed) % 8) {
    case 0:
        MUST(cuMemPoolTrimTo(pools[rand_r(seed) % POOLS], threshold));
        break;
    case 1:
        MUST(cuMemPoolSetAttribute(pools[rand_r(seed) % POOLS], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                   &threshold));
        break;
    case 2:
        MUST(cuCtxSynchronize());
        break;
    default:
        MUST(cuStreamSynchronize(streams[rand_r(seed) % STREAMS]));
    }
}

static void *thread(void *number)
{
    CUdeviceptr *mine = held + HELD * (uintptr_t)number;
    unsigned seed = first_seed * THREADS + (unsigned)(uintptr_t)number;
    MUST(cuCtxSetCurrent(context));
    for (long round = 0; round < rounds; round++) {
        CUdeviceptr *place = &mine[rand_r(&seed) % HELD];
        if (*place)
            let_go(place, &seed);
        if (rand_r(&seed) % 4 == 0)
            tidy(&seed);
        int result = allocate(place, &seed);
        if (result == CUDA_SUCCESS) {
            __atomic_add_fetch(&granted, 1, __ATOMIC_RELAXED);
        } else {
            if (result != CUDA_ERROR_OUT_OF_MEMORY)
                MUST(result);
            *place = 0;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[THREADS];
    CUmemPoolProps properties = pool_on(0);
    size_t keep = 128 * MiB;
    rounds = atol(argv[1]);
    first_seed = (unsigned)atol(argv[argc - 1]);
    context = use_device(0);
    for (int i = 1; i < STREAMS; i++)
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&pools[0], 0));
    for (int i = 1; i < POOLS; i++)
        MUST(cuMemPoolCreate(&pools[i], &properties));
    MUST(cuMemPoolSetAttribute(pools[1], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    SAY("granted %ld", granted);
    SAY("at rest");
    if (getchar() != '\n')
        return 1;
    for (int i = 0; i < THREADS * HELD; i++)
        if (held[i])
            MUST(cuMemFreeAsync(held[i], streams[1]));
    for (int i = 1; i < POOLS; i++)
        MUST(cuMemPoolDestroy(pools[i]));
    MUST(cuMemPoolTrimTo(pools[0], 0));
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolTrimTo(pools[0], 0));
    SAY("empty");
    getchar();
    return 0;
}
