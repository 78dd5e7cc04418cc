// build: -lcuda -pthread
/* Eight threads with memory of every kind. Each holds at most argv[1] MiB at a time, pitch included: that
 * must fit eight times, so no request may be refused. */
#include <pthread.h>
#include "cuda.h"
#include "trace.h"

enum { THREADS = 8, ROUNDS = 400 };

static size_t part;
static long granted;
static CUcontext context;

static int allocate(CUdeviceptr *a, int kind)
{
    size_t pitch;
    switch (kind) {
    case 0:
        /* Rows of one byte: the pitch is at most 4 KiB on any card. */
        return cuMemAllocPitch_v2(a, &pitch, 1, part / (4 * KiB), 4);
    case 1:
        return cuMemAllocManaged(a, part, CU_MEM_ATTACH_GLOBAL);
    case 2:
        return cuMemAllocManaged(a, part / 2, CU_MEM_ATTACH_HOST);
    default:
        return cuMemAlloc_v2(a, part);
    }
}

static void *thread(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    MUST(cuCtxSetCurrent(context));
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr a = UNTOUCHED;
        MUST(allocate(&a, rand_r(&seed) % 4));
        __atomic_add_fetch(&granted, 1, __ATOMIC_RELAXED);
        MUST(cuMemFree_v2(a));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[THREADS];
    part = mebibytes(argv[argc - 1]);
    context = use_device(0);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    SAY("granted %ld", granted);
    getchar();
    return 0;
}
