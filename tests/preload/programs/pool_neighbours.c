// build: -lcuda -pthread
/* The slice has 32 MiB left beside a pool. One thread requests 40 MiB, which is always refused; the other
 * requests 4 MiB, for which the pool may grow by 32 MiB. Prints how often the second was refused. */
#include <pthread.h>
#include "cuda.h"
#include "trace.h"

static CUcontext context;
static volatile int done;

static void *ask_for_much(void *unused)
{
    CUdeviceptr much;
    MUST(cuCtxSetCurrent(context));
    while (!done)
        if (cuMemAllocAsync(&much, 40 * MiB, NULL) == CUDA_SUCCESS)
            MUST(cuMemFreeAsync(much, NULL));
    return unused;
}

int main(void)
{
    CUdeviceptr held[2], little;
    pthread_t other;
    int refused = 0;
    context = use_device(0);
    for (int i = 0; i < 2; i++)
        MUST(cuMemAllocAsync(&held[i], 20 * MiB, NULL));
    pthread_create(&other, NULL, ask_for_much, NULL);
    for (int i = 0; i < 500; i++)
        if (cuMemAllocAsync(&little, 4 * MiB, NULL) == CUDA_SUCCESS)
            MUST(cuMemFreeAsync(little, NULL));
        else
            refused++;
    done = 1;
    pthread_join(other, NULL);
    SAY("refused %d", refused);
    return 0;
}
