// build: -lcuda -lpthread
/* Threads take and drop references to the primary context of card 0, and create and destroy contexts
 * of their own, all at once. Arguments: threads, rounds. Says how often each way was refused. No
 * context is left behind. */
#include <pthread.h>
#include "trace.h"

static int rounds, no_primary, no_context;

static void *run(void *unused)
{
    (void)unused;
    for (int i = 0; i < rounds; i++) {
        CUcontext context = NULL;
        CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
        if (result == CUDA_SUCCESS)
            MUST(cuDevicePrimaryCtxRelease_v2(0));
        else
            __atomic_add_fetch(&no_primary, 1, __ATOMIC_RELAXED);
        result = cuCtxCreate_v2(&context, 0, 0);
        if (result == CUDA_SUCCESS)
            MUST(cuCtxDestroy_v2(context));
        else
            __atomic_add_fetch(&no_context, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 1;
    MUST(cuInit(0));
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    SAY("refused primary=%d created=%d", no_primary, no_context);
    /* What is still charged would be missing here. */
    use_device(0);
    size_t free, total;
    MUST(cuMemGetInfo_v2(&free, &total));
    SAY("left free=%zu total=%zu", free, total);
    return 0;
}
