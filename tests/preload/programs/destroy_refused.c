// build: -lcuda -lpthread
/* One thread repeatedly destroys a primary context, which the driver refuses; another allocates and
 * frees. In the end nothing is charged, and everything but the context is free. */
#include <pthread.h>
#include "trace.h"

static CUcontext context;
static volatile int stop;

static void *destroy(void *unused)
{
    (void)unused;
    while (!stop)
        cuCtxDestroy_v2(context);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    size_t free = 0, total = 0;
    int failed = 0;
    context = use_device(0);
    pthread_create(&thread, NULL, destroy, NULL);
    for (int i = 0; i < 20000; i++) {
        CUdeviceptr allocation;
        failed += cuMemAlloc_v2(&allocation, MiB) != 0 || cuMemFree_v2(allocation) != 0;
    }
    stop = 1;
    pthread_join(thread, NULL);
    MUST(cuMemGetInfo_v2(&free, &total));
    SAY("failed=%d held=%zu", failed, total - free);
    return 0;
}
