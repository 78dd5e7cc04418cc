// build: -lcuda -pthread
/* Eight threads make the program's very first driver call at the same moment. */
#include <pthread.h>
#include "trace.h"

static pthread_barrier_t start;
static CUresult results[8];

static void *thread(void *slot)
{
    CUdeviceptr allocation;
    CUcontext context;
    CUresult *result = slot;
    pthread_barrier_wait(&start);
    if ((*result = cuInit(0)) || (*result = cuDevicePrimaryCtxRetain(&context, 0)) ||
        (*result = cuCtxSetCurrent(context)))
        return NULL;
    *result = cuMemAlloc_v2(&allocation, MiB);
    return NULL;
}

int main(void)
{
    pthread_t ids[8];
    pthread_barrier_init(&start, NULL, 8);
    for (int i = 0; i < 8; i++)
        pthread_create(&ids[i], NULL, thread, &results[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(ids[i], NULL);
        SAY("thread %d -> %d", i, results[i]);
    }
    return 0;
}
