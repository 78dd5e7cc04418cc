// build: -lcuda -pthread
/* Device memory as PyTorch's expandable segments take it:
 *
 *   expandable_segments release|keep THREADS ROUNDS SEED
 *
 * Each thread has four segments, as for two streams with small and large tensors: ranges of addresses of
 * 1.125 times the card, with granules of 2 or 20 MiB. A tensor maps the granules that it needs, sets
 * their access at once, and leaves them mapped when it is dropped. A tensor for which memory is out first
 * makes the thread unmap all its granules without a tensor, and tries again. Handles are released when they
 * are mapped, or kept until they are unmapped.
 *
 * Each stage prints its name and the mapped bytes, and waits for a line. The stages: as many granules as
 * there are, every other one unmapped, ROUNDS of tensors that come and go, all unmapped. */
#include <pthread.h>
#include <string.h>
#include "cuda.h"
#include "trace.h"

enum { SEGMENTS = 4, MOST_THREADS = 8, TENSORS = 160, MOST_GRANULES = 6 };
enum state { UNMAPPED, FREE, USED };

struct segment {
    CUdeviceptr base;
    size_t granule, count;
    unsigned char *states;
    CUmemGenericAllocationHandle *handles;
};

struct tensor {
    struct segment *segment;
    size_t first, count;
    unsigned char tag;
};

static struct worker {
    pthread_t id;
    unsigned seed;
    CUstream stream;
    struct segment segments[SEGMENTS];
    struct tensor tensors[TENSORS];
    size_t mapped;
} workers[MOST_THREADS];

static CUcontext context;
static CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static int keeps_handles, threads, rounds;
static long retries, refusals;
static pthread_barrier_t barrier;

static CUdeviceptr address(struct segment *segment, size_t granule)
{
    return segment->base + granule * segment->granule;
}

/* Maps granules that are not mapped: all of them or none. */
static int map(struct worker *me, struct segment *segment, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        int result = cuMemCreate(&segment->handles[i], segment->granule, &properties, 0);
        if (result) {
            while (i-- > first)
                MUST(cuMemRelease(segment->handles[i]));
            return result;
        }
    }
    for (size_t i = first; i < first + count; i++) {
        MUST(cuMemMap(address(segment, i), segment->granule, 0, segment->handles[i], 0));
        if (!keeps_handles)
            MUST(cuMemRelease(segment->handles[i]));
        segment->states[i] = FREE;
    }
    MUST(cuMemSetAccess(address(segment, first), count * segment->granule, &access, 1));
    me->mapped += count * segment->granule;
    return 0;
}

static void unmap(struct worker *me, struct segment *segment, size_t granule)
{
    MUST(cuMemUnmap(address(segment, granule), segment->granule));
    if (keeps_handles)
        MUST(cuMemRelease(segment->handles[granule]));
    segment->states[granule] = UNMAPPED;
    me->mapped -= segment->granule;
}

static void unmap_all_free(struct worker *me)
{
    MUST(cuStreamSynchronize(me->stream));
    for (struct segment *segment = me->segments; segment < me->segments + SEGMENTS; segment++)
        for (size_t i = 0; i < segment->count; i++)
            if (segment->states[i] == FREE)
                unmap(me, segment, i);
}

/* The first place for so many granules, mapped or not; `count` of the segment if there is none. */
static size_t place_for(struct segment *segment, size_t count)
{
    size_t run = 0;
    for (size_t i = 0; i < segment->count; i++) {
        run = segment->states[i] == USED ? 0 : run + 1;
        if (run == count)
            return i + 1 - count;
    }
    return segment->count;
}

static int map_missing(struct worker *me, struct segment *segment, size_t first, size_t count)
{
    for (size_t i = first, end; i < first + count; i = end) {
        for (end = i + 1; end < first + count && segment->states[end] == segment->states[i]; end++)
            ;
        int result = segment->states[i] == UNMAPPED ? map(me, segment, i, end - i) : 0;
        if (result)
            return result;
    }
    return 0;
}

static void tag(struct tensor *tensor, size_t granule)
{
    MUST(cuMemsetD8_v2(address(tensor->segment, granule), tensor->tag, 1));
}

static void check_tag(struct tensor *tensor, size_t granule)
{
    unsigned char found = 0;
    MUST(cuMemcpyDtoH_v2(&found, address(tensor->segment, granule), 1));
    must(found != tensor->tag, "the tensor's bytes");
}

static int make(struct worker *me, struct tensor *tensor)
{
    struct segment *segment = &me->segments[rand_r(&me->seed) % SEGMENTS];
    size_t count = 1 + rand_r(&me->seed) % MOST_GRANULES;
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t first = place_for(segment, count);
        if (first == segment->count)
            return CUDA_ERROR_OUT_OF_MEMORY;
        int result = map_missing(me, segment, first, count);
        if (result == 0) {
            memset(segment->states + first, USED, count);
            *tensor = (struct tensor){segment, first, count, (unsigned char)rand_r(&me->seed)};
            tag(tensor, first);
            tag(tensor, first + count - 1);
            return 0;
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            MUST(result);
        __atomic_add_fetch(&retries, 1, __ATOMIC_RELAXED);
        unmap_all_free(me);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void drop(struct tensor *tensor)
{
    if (!tensor->segment)
        return;
    check_tag(tensor, tensor->first);
    check_tag(tensor, tensor->first + tensor->count - 1);
    memset(tensor->segment->states + tensor->first, FREE, tensor->count);
    tensor->segment = NULL;
}

static void begin(struct worker *me)
{
    size_t total;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&me->stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceTotalMem_v2(&total, 0));
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *segment = &me->segments[i];
        segment->granule = i % 2 ? 2 * MiB : 20 * MiB;
        segment->count = (total + total / 8 + segment->granule - 1) / segment->granule;
        segment->states = calloc(segment->count, 1);
        segment->handles = calloc(segment->count, sizeof *segment->handles);
        MUST(cuMemAddressReserve(&segment->base, segment->count * segment->granule, 0, 0, 0));
    }
}

/* The large granules first, so that the small ones take what is left. */
static void map_everything(struct worker *me)
{
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *segment = &me->segments[(2 * i) % SEGMENTS + i / 2];
        int result = 0;
        for (size_t next = 0; next < segment->count && result == 0; next++)
            result = map(me, segment, next, 1);
        must(result != CUDA_ERROR_OUT_OF_MEMORY, "to be refused at the limit");
    }
}

static void unmap_every_other(struct worker *me)
{
    for (struct segment *segment = me->segments; segment < me->segments + SEGMENTS; segment++)
        for (size_t i = 1; i < segment->count; i += 2)
            if (segment->states[i] == FREE)
                unmap(me, segment, i);
}

static void churn(struct worker *me)
{
    for (int round = 0; round < rounds; round++) {
        struct tensor *tensor = &me->tensors[rand_r(&me->seed) % TENSORS];
        if (tensor->segment) {
            drop(tensor);
        } else if (make(me, tensor)) {
            __atomic_add_fetch(&refusals, 1, __ATOMIC_RELAXED);
            drop(&me->tensors[rand_r(&me->seed) % TENSORS]);
        }
    }
}

static void end(struct worker *me)
{
    for (int i = 0; i < TENSORS; i++)
        drop(&me->tensors[i]);
    unmap_all_free(me);
    for (int i = 0; i < SEGMENTS; i++)
        MUST(cuMemAddressFree(me->segments[i].base, me->segments[i].count * me->segments[i].granule));
}

static void wait_after(const char *stage)
{
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        size_t mapped = 0;
        for (int i = 0; i < threads; i++)
            mapped += workers[i].mapped;
        SAY("%s %zu", stage, mapped);
        while (getchar() != '\n')
            ;
    }
    pthread_barrier_wait(&barrier);
}

static void *work(void *pointer)
{
    struct worker *me = pointer;
    begin(me);
    map_everything(me);
    wait_after("full");
    unmap_every_other(me);
    wait_after("holes");
    churn(me);
    wait_after("churned");
    end(me);
    wait_after("empty");
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    keeps_handles = strcmp(argv[1], "keep") == 0;
    threads = atoi(argv[2]);
    rounds = atoi(argv[3]);
    context = use_device(0);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i].seed = (unsigned)atoi(argv[4]) + (unsigned)i;
        pthread_create(&workers[i].id, NULL, work, &workers[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].id, NULL);
    SAY("retries %ld refusals %ld", retries, refusals);
    return 0;
}
