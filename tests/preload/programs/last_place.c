// build: -lcuda -pthread
/* argv[2] processes request, at the same moment, 1/argv[3] of the free memory each, of the kind argv[1]:
 * "linear", "pitched", "managed", "async" or "pool". In every one of argv[4] rounds exactly argv[3] of them
 * must succeed. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"
#include "trace.h"

#define ROUNDS 4096

static struct shared {
    pthread_barrier_t step;
    size_t unit;
    unsigned granted[ROUNDS];
} *shared;

static int request(const char *kind, CUmemoryPool pool, CUdeviceptr *a)
{
    size_t pitch;
    if (!strcmp(kind, "pitched"))
        return cuMemAllocPitch_v2(a, &pitch, 64 * KiB, shared->unit / (64 * KiB), 4);
    if (!strcmp(kind, "managed"))
        return cuMemAllocManaged(a, shared->unit, CU_MEM_ATTACH_GLOBAL);
    if (!strcmp(kind, "async"))
        return cuMemAllocAsync(a, shared->unit, NULL);
    if (!strcmp(kind, "pool"))
        return cuMemAllocFromPoolAsync(a, shared->unit, pool, NULL);
    return cuMemAlloc_v2(a, shared->unit);
}

static int process(const char *kind, int index, int places, int rounds)
{
    size_t free, total;
    CUmemoryPool pool;
    CUmemPoolProps properties = pool_on(0);
    use_device(0);
    MUST(cuMemPoolCreate(&pool, &properties));
    pthread_barrier_wait(&shared->step);
    if (index == 0) {
        MUST(cuMemGetInfo_v2(&free, &total));
        shared->unit = free / (size_t)places / (2 * MiB) * (2 * MiB);
    }
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr allocation = UNTOUCHED;
        pthread_barrier_wait(&shared->step);
        int result = request(kind, pool, &allocation);
        if (result == CUDA_SUCCESS)
            __atomic_add_fetch(&shared->granted[round], 1, __ATOMIC_RELAXED);
        else if (result != CUDA_ERROR_OUT_OF_MEMORY)
            MUST(result);
        pthread_barrier_wait(&shared->step);
        if (result == CUDA_SUCCESS) {
            MUST(cuMemFree_v2(allocation));
            MUST(cuCtxSynchronize());
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int processes = atoi(argv[2]), places = atoi(argv[3]), rounds = atoi(argv[argc - 1]);
    pthread_barrierattr_t between;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&between);
    pthread_barrierattr_setpshared(&between, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->step, &between, (unsigned)processes);
    for (int index = 0; index < processes; index++)
        if (fork() == 0)
            _exit(process(argv[1], index, places, rounds));
    for (int index = 0; index < processes; index++) {
        int status;
        wait(&status);
        if (status) {
            SAY("FAILED a process ended with %d", status);
            return 1;
        }
    }
    for (int round = 0; round < rounds; round++) {
        if (shared->granted[round] != (unsigned)places) {
            SAY("FAILED round %d: %u granted", round, shared->granted[round]);
            return 1;
        }
    }
    SAY("%d granted in every round", places);
    return 0;
}
