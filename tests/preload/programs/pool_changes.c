// build: -lcuda -pthread
/* One thread repeatedly changes the device's current pool. Another thread allocates from the current
 * pool, frees and synchronises, argv[1] times, and holds its last memory until a line of input. */
#include <pthread.h>
#include "cuda.h"
#include "trace.h"

enum { POOLS = 300, ASKED = 20 };

static CUmemoryPool pools[POOLS];
static volatile int done;

static void *change(void *unused)
{
    for (unsigned i = 0; !done; i++)
        MUST(cuDeviceSetMemPool(0, pools[i % POOLS]));
    return unused;
}

int main(int argc, char **argv)
{
    CUdeviceptr held[ASKED];
    CUmemPoolProps properties = pool_on(0);
    pthread_t changer;
    int count = 0;
    use_device(0);
    for (int i = 0; i < POOLS; i++)
        MUST(cuMemPoolCreate(&pools[i], &properties));
    pthread_create(&changer, NULL, change, NULL);
    for (long round = 0; round < atol(argv[argc - 1]); round++) {
        while (count > 0)
            MUST(cuMemFree_v2(held[--count]));
        MUST(cuCtxSynchronize());
        for (int i = 0; i < ASKED; i++)
            if (cuMemAllocAsync(&held[count], 33 * MiB, NULL) == CUDA_SUCCESS)
                count++;
    }
    done = 1;
    pthread_join(changer, NULL);
    SAY("at rest");
    getchar();
    return 0;
}
