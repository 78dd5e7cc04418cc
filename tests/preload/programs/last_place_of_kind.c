// build: -lcuda -pthread
/* As last_place.c, for every other kind of memory: argv[1] is "pitch", "managed", "async" or "pool".
 * Eight processes request, at the same moment, a fourth of the limit of argv[2] MiB each. In every one of
 * argv[3] rounds exactly four of them must succeed. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"
#include "trace.h"

enum { PROCESSES = 8, PLACES = 4, ROUNDS = 1000 };

static struct shared {
    pthread_barrier_t step;
    unsigned granted[ROUNDS];
} *shared;

static CUmemoryPool pool;

static int ask(const char *kind, CUdeviceptr *a, size_t part)
{
    size_t pitch;
    switch (*kind == 'p' ? kind[1] : *kind) {
    case 'i':
        return cuMemAllocPitch_v2(a, &pitch, 64 * KiB, part / (64 * KiB), 4);
    case 'm':
        return cuMemAllocManaged(a, part, CU_MEM_ATTACH_GLOBAL);
    case 'a':
        return cuMemAllocAsync(a, part, NULL);
    default:
        return cuMemAllocFromPoolAsync(a, part, pool, NULL);
    }
}

static void process(const char *kind, size_t part, int rounds)
{
    CUmemPoolProps properties = pool_on(0);
    use_device(0);
    MUST(cuMemPoolCreate(&pool, &properties));
    for (int round = 0; round < rounds; round++) {
        CUdeviceptr a = UNTOUCHED;
        pthread_barrier_wait(&shared->step);
        int result = ask(kind, &a, part);
        if (result == CUDA_SUCCESS)
            __atomic_add_fetch(&shared->granted[round], 1, __ATOMIC_RELAXED);
        else if (result != CUDA_ERROR_OUT_OF_MEMORY)
            MUST(result);
        pthread_barrier_wait(&shared->step);
        if (result == CUDA_SUCCESS) {
            MUST(cuMemFree_v2(a));
            MUST(cuCtxSynchronize());
        }
    }
}

int main(int argc, char **argv)
{
    size_t part = mebibytes(argv[2]) / PLACES;
    int rounds = atoi(argv[argc - 1]);
    pthread_barrierattr_t between;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&between);
    pthread_barrierattr_setpshared(&between, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->step, &between, PROCESSES);
    for (int index = 0; index < PROCESSES; index++) {
        if (fork() == 0) {
            process(argv[1], part, rounds);
            _exit(0);
        }
    }
    for (int index = 0; index < PROCESSES; index++) {
        int status;
        wait(&status);
        if (status) {
            SAY("FAILED a process ended with %d", status);
            return 1;
        }
    }
    for (int round = 0; round < rounds; round++) {
        if (shared->granted[round] != PLACES) {
            SAY("FAILED round %d: %u granted", round, shared->granted[round]);
            return 1;
        }
    }
    SAY("%d granted in every round", PLACES);
    return 0;
}
