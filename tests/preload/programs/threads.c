// build: -lcuda -pthread
/* Eight threads allocate and free argv[1] MiB at the same time. They never hold more than eight
 * allocations, so no request may be refused. */
#include <pthread.h>
#include "trace.h"

static size_t asked;
static CUcontext context;

static void *thread(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    for (int round = 0; round < 500; round++) {
        CUdeviceptr allocation = UNTOUCHED;
        MUST(cuMemAlloc_v2(&allocation, asked));
        MUST(cuMemFree_v2(allocation));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[8];
    asked = mebibytes(argv[argc - 1]);
    context = use_device(0);
    for (int i = 0; i < 8; i++)
        pthread_create(&ids[i], NULL, thread, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(ids[i], NULL);
    SAY("4000 granted");
    return 0;
}
