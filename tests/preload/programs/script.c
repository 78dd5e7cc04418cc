// build: -lcuda -pthread
/* Does what each line of standard input says and answers with "LINE -> RESULT OUT-VALUES", so that a
 * test reads as the calls that it is about, and can look at the books between any two of them.
 *
 * Pointers, pools, streams and contexts have names of one letter; `-` is NULL, the streams `L` and
 * `P` are those that every context has. Sizes take K, M or G.
 * Before a command: `ptsz` looks its per-thread form up by cuGetProcAddress, `thread` makes the call
 * on another thread, `fork` in a child. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "memory.h"
#include "trace.h"

static CUdeviceptr pointers[128];
static CUmemoryPool pools[128];
static CUstream streams[128];
static CUcontext contexts[128];
static void *hosts[128];
static CUcontext now;

/* The functions that exist in two forms, which differ in what a NULL stream is. */
static struct stream_calls {
    __typeof__(&cuMemAllocAsync) alloc;
    __typeof__(&cuMemAllocFromPoolAsync) alloc_from_pool;
    __typeof__(&cuMemFreeAsync) free;
    __typeof__(&cuStreamSynchronize) synchronize;
    __typeof__(&cuStreamQuery) query;
} plain = {cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, cuStreamSynchronize,
           cuStreamQuery},
  per_thread, *calls = &plain;

static void *look_up(const char *symbol)
{
    void *found = NULL;
    int status;
    MUST(cuGetProcAddress_v2(symbol, &found, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                             &status));
    return found;
}

static void look_up_per_thread(void)
{
    per_thread = (struct stream_calls){
        look_up("cuMemAllocAsync"), look_up("cuMemAllocFromPoolAsync"), look_up("cuMemFreeAsync"),
        look_up("cuStreamSynchronize"), look_up("cuStreamQuery")};
}

static size_t size(const char *text)
{
    char *unit;
    size_t number = strtoull(text, &unit, 0);
    return number * (*unit == 'G' ? GiB : *unit == 'M' ? MiB : *unit == 'K' ? KiB : 1);
}

#define SLOT(table, name) (table)[(unsigned char)*(name) % 128]
#define OUT(...) printf(" " __VA_ARGS__)
#define IS(name) (strcmp(a[0], name) == 0)

/* The out values are shown whatever the result: what a refused call leaves alone is tested, too. */
#define ANSWER(call, ...)          \
    do {                           \
        printf(" -> %d", (call));  \
        __VA_OPT__(OUT(__VA_ARGS__);) \
        return;                    \
    } while (0)

static void show_attributes(CUdeviceptr pointer_)
{
    for (int attribute = 0; attribute <= CU_POINTER_ATTRIBUTE_MOST; attribute++) {
        unsigned char value[64];
        unsigned long long word;
        memset(value, 0x5a, sizeof value);
        int result = cuPointerGetAttribute(value, attribute, pointer_);
        memcpy(&word, value, sizeof word);
        switch (attribute) {
        /* Addresses, and numbers made of them: not the same in two runs. */
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            OUT("%d:%d:%s", attribute, result, pointer(word));
            break;
        default:
            OUT("%d:%d:%016llx", attribute, result, word);
        }
    }
}

/* Each group of commands hands on what it does not know; what none knows is the test's error. */
static void contexts_and_streams(char **a)
{
    if (IS("stream"))
        ANSWER(cuStreamCreate(&SLOT(streams, a[1]), CU_STREAM_NON_BLOCKING));
    if (IS("destroy_stream"))
        ANSWER(cuStreamDestroy_v2(SLOT(streams, a[1])));
    if (IS("busy")) {
        void *module, *function, *none = NULL;
        MUST(cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n"));
        MUST(cuModuleGetFunction(&function, module, "work"));
        ANSWER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, SLOT(streams, a[1]), &none, NULL));
    }
    if (IS("sync"))
        ANSWER(calls->synchronize(SLOT(streams, a[1])));
    if (IS("query"))
        ANSWER(calls->query(SLOT(streams, a[1])));
    if (IS("sync_context"))
        ANSWER(cuCtxSynchronize());
    if (IS("sync_event") || IS("query_event")) {
        CUevent event = NULL;
        MUST(cuEventCreate(&event, 0));
        MUST(cuEventRecord(event, SLOT(streams, a[1])));
        int result = IS("sync_event") ? cuEventSynchronize(event) : cuEventQuery(event);
        MUST(cuEventDestroy_v2(event));
        ANSWER(result);
    }
    if (IS("init"))
        ANSWER(cuInit(0));
    if (IS("device")) {
        int result = cuDevicePrimaryCtxRetain(&now, atoi(a[1]));
        ANSWER(result ? result : cuCtxSetCurrent(now), "%s", POINTER(now));
    }
    if (IS("context")) {
        int result = cuCtxCreate_v2(&SLOT(contexts, a[1]), 0, atoi(a[2]));
        now = SLOT(contexts, a[1]);
        ANSWER(result, "%s", POINTER(now));
    }
    if (IS("current")) {
        now = SLOT(contexts, a[1]);
        ANSWER(cuCtxSetCurrent(now));
    }
    if (IS("destroy"))
        ANSWER(cuCtxDestroy_v2(SLOT(contexts, a[1])));
    if (IS("reset"))
        ANSWER(cuDevicePrimaryCtxReset_v2(atoi(a[1])));
    if (IS("release"))
        ANSWER(cuDevicePrimaryCtxRelease_v2(atoi(a[1])));
    if (IS("info")) {
        size_t free = UNTOUCHED, total = UNTOUCHED;
        ANSWER(cuMemGetInfo_v2(&free, &total), "free=%zu total=%zu", free, total);
    }
    SAY(" FAILED no such command");
    exit(2);
}

static void pool_commands(char **a)
{
    CUdeviceptr *slot = a[1] ? &SLOT(pointers, a[1]) : NULL;
    CUmemoryPool *pool = a[1] ? &SLOT(pools, a[1]) : NULL;
    if (IS("async"))
        ANSWER(calls->alloc(slot, size(a[2]), SLOT(streams, a[3])), "%s", pointer(*slot));
    if (IS("from_pool"))
        ANSWER(calls->alloc_from_pool(slot, size(a[2]), SLOT(pools, a[3]), SLOT(streams, a[4])),
               "%s", pointer(*slot));
    if (IS("free_async"))
        ANSWER(calls->free(*slot, SLOT(streams, a[2])));
    if (IS("pool")) {
        CUmemPoolProps properties = pool_on(atoi(a[2]));
        ANSWER(cuMemPoolCreate(pool, &properties), "%s", POINTER(*pool));
    }
    if (IS("default_pool"))
        ANSWER(cuDeviceGetDefaultMemPool(pool, atoi(a[2])), "%s", POINTER(*pool));
    if (IS("current_pool"))
        ANSWER(cuDeviceGetMemPool(pool, atoi(a[2])), "%s", POINTER(*pool));
    if (IS("use_pool"))
        ANSWER(cuDeviceSetMemPool(atoi(a[2]), *pool));
    if (IS("destroy_pool"))
        ANSWER(cuMemPoolDestroy(*pool));
    if (IS("trim"))
        ANSWER(cuMemPoolTrimTo(*pool, size(a[2])));
    if (IS("set") || IS("get")) {
        unsigned long long value = IS("get") ? UNTOUCHED : size(a[3]);
        int attribute = atoi(a[2]);
        int result = IS("get") ? cuMemPoolGetAttribute(*pool, attribute, &value)
                               : cuMemPoolSetAttribute(*pool, attribute, &value);
        /* The first three are ints, which leave the other half alone. */
        ANSWER(result, "%d:%llu", attribute,
               attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? (unsigned)value
                                                                              : value);
    }
    if (IS("access")) {
        CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, atoi(a[2])},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        int flags = -1, set = cuMemPoolSetAccess(*pool, &access, 1);
        OUT("set=%d", set);
        ANSWER(cuMemPoolGetAccess(&flags, *pool, &access.location), "flags=%d", flags);
    }
    contexts_and_streams(a);
}

static void memory(char **a)
{
    CUdeviceptr *slot = a[1] ? &SLOT(pointers, a[1]) : NULL;
    if (IS("alloc"))
        ANSWER(cuMemAlloc_v2(slot, size(a[2])), "%s", pointer(*slot));
    if (IS("managed"))
        ANSWER(cuMemAllocManaged(slot, size(a[2]), (unsigned)size(a[3])), "%s", pointer(*slot));
    if (IS("pitch")) {
        size_t pitch = UNTOUCHED;
        ANSWER(cuMemAllocPitch_v2(slot, &pitch, size(a[2]), size(a[3]), (unsigned)size(a[4])),
               "%s pitch=%zu", pointer(*slot), pitch);
    }
    if (IS("pitch_v1")) {
        unsigned narrow = 0, pitch = (unsigned)UNTOUCHED;
        int result = cuMemAllocPitch(&narrow, &pitch, (unsigned)size(a[2]), (unsigned)size(a[3]),
                                     (unsigned)size(a[4]));
        *slot = narrow;
        ANSWER(result, "%s pitch=%u", pointer(narrow), pitch);
    }
    if (IS("free"))
        ANSWER(cuMemFree_v2(*slot));
    if (IS("free_v1"))
        ANSWER(cuMemFree((unsigned)*slot));
    if (IS("attributes")) {
        printf(" -> 0");
        show_attributes(*slot);
        return;
    }
    if (IS("host"))
        ANSWER(cuMemHostAlloc(&SLOT(hosts, a[1]), size(a[2]), (unsigned)size(a[3])));
    if (IS("host_plain"))
        ANSWER(cuMemAllocHost_v2(&SLOT(hosts, a[1]), size(a[2])));
    if (IS("register")) {
        SLOT(hosts, a[1]) = aligned_alloc(4096, size(a[2]));
        ANSWER(cuMemHostRegister_v2(SLOT(hosts, a[1]), size(a[2]), (unsigned)size(a[3])));
    }
    if (IS("unregister"))
        ANSWER(cuMemHostUnregister(SLOT(hosts, a[1])));
    if (IS("free_host"))
        ANSWER(cuMemFreeHost(SLOT(hosts, a[1])));
    if (IS("on_device"))
        ANSWER(cuMemHostGetDevicePointer_v2(slot, SLOT(hosts, a[1]), 0), "same=%d",
               *slot == (CUdeviceptr)(uintptr_t)SLOT(hosts, a[1]));
    pool_commands(a);
}

/* Every way out of a process that the kernel knows. */
static void leave(const char *how, char **command)
{
    if (strcmp(how, "exec") == 0)
        execvp(command[0], command);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "crash") == 0)
        *(volatile int *)8 = 0;
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    exit(0);
}

static void *on_thread(void *a)
{
    MUST(cuCtxSetCurrent(now));
    memory(a);
    return NULL;
}

static void run(char **a)
{
    if (IS("ptsz")) {
        if (!per_thread.alloc)
            look_up_per_thread();
        calls = &per_thread;
        run(a + 1);
        calls = &plain;
    } else if (IS("thread")) {
        pthread_t id;
        pthread_create(&id, NULL, on_thread, a + 1);
        pthread_join(id, NULL);
    } else if (IS("fork")) {
        int status = -1;
        fflush(stdout);
        if (fork() == 0) {
            run(a + 1);
            fflush(stdout);
            _exit(0);
        }
        wait(&status);
        OUT("child=%d", status);
    } else if (IS("leave")) {
        printf(" -> 0\n");
        fflush(stdout);
        leave(a[1], a + 2);
    } else {
        memory(a);
    }
}

int main(void)
{
    char line[256];
    streams['L'] = (CUstream)1; /* CU_STREAM_LEGACY */
    streams['P'] = (CUstream)2; /* CU_STREAM_PER_THREAD */
    while (fgets(line, sizeof line, stdin)) {
        char *words[10] = {NULL}, *rest = NULL;
        line[strcspn(line, "\n")] = '\0';
        printf("%s", line);
        words[0] = strtok_r(line, " ", &rest);
        for (int i = 0; words[i] && i < 8; i++)
            words[i + 1] = strtok_r(NULL, " ", &rest);
        if (words[0])
            run(words);
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}
