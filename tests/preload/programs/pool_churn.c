// build: -lcuda -pthread
/* Eight threads create pools, allocate from them and destroy them before or after their memory is freed,
 * argv[1] times each, so that the driver reuses handles and addresses all the time. */
#include <pthread.h>
#include "cuda.h"
#include "trace.h"

enum { THREADS = 8, HELD = 3 };

static CUcontext context;
static long rounds;

static void *thread(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    CUmemPoolProps properties = pool_on(0);
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (long round = 0; round < rounds; round++) {
        CUmemoryPool pool;
        CUdeviceptr held[HELD] = {0};
        int before = rand_r(&seed) % (HELD + 1);
        MUST(cuMemPoolCreate(&pool, &properties));
        for (int i = 0; i < HELD; i++) {
            size_t asked = 512 * (1 + rand_r(&seed) % 100000);
            int result = cuMemAllocFromPoolAsync(&held[i], asked, pool, stream);
            if (result == CUDA_ERROR_OUT_OF_MEMORY)
                held[i] = 0;
            else
                MUST(result);
        }
        for (int i = 0; i < HELD; i++) {
            if (i == before)
                MUST(cuMemPoolDestroy(pool));
            if (held[i])
                MUST(rand_r(&seed) % 2 ? cuMemFreeAsync(held[i], stream) : cuMemFree_v2(held[i]));
        }
        if (before == HELD)
            MUST(cuMemPoolDestroy(pool));
        if (rand_r(&seed) % 2)
            MUST(cuStreamSynchronize(stream));
    }
    MUST(cuStreamSynchronize(stream));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[THREADS];
    rounds = atol(argv[argc - 1]);
    context = use_device(0);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    MUST(cuCtxSynchronize());
    SAY("at rest");
    getchar();
    return 0;
}
