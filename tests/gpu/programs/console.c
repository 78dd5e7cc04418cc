// build: -ldl
/* A CUDA program that does what it is told: one command per line on standard input, one line
 * "RESULT name=value ..." as answer. So a test is written where its claims are, in one place, and the
 * process that holds the memory lives exactly as long as the test wants.
 *
 * argv[1] is the road on which functions are found: "dlsym", or "lookup" for cuGetProcAddress. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "api.h"

enum { SLOTS = 4096, POOLS = 16 };

static CUdeviceptr allocations[SLOTS];
static size_t slots;
static handle pools[POOLS]; /* the first is the device's default pool */
static size_t created = 1;
static int device;
static void *driver;
static int by_lookup;

/* CUDA 11.2 is the oldest version that has all of them, and has them in the forms of api.h. */
static void *look_up(const char *symbol)
{
    enum { VERSION = 11020 };
    char base[64];
    void *function = NULL;
    snprintf(base, sizeof base, "%s", symbol);
    char *suffix = strstr(base, "_v2");
    if (suffix)
        *suffix = '\0';
    return proc_address(driver, base, &function, VERSION, 0) ? NULL : function;
}

static void *find(const char *symbol)
{
    void *function = by_lookup ? look_up(symbol) : dlsym(driver, symbol);
    if (!function) {
        printf("%d missing=1\n", NOT_FOUND);
        fflush(stdout);
    }
    return function;
}

/* The call's result, or NOT_FOUND where the driver has no such function. */
#define CALL(symbol, ...)                                                       \
    __extension__({                                                             \
        static __typeof__(&symbol) function_;                                   \
        if (!function_)                                                         \
            function_ = (__typeof__(&symbol))find(#symbol);                     \
        if (!function_)                                                         \
            return;                                                             \
        function_(__VA_ARGS__);                                                 \
    })

#define ANSWER(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

static unsigned long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long long)time.tv_sec * 1000000000ull + (unsigned long long)time.tv_nsec;
}

typedef struct { char name[64], text[512]; size_t a, b, c; } command;

/* A slot is used once; what it held is found under its number until the end. The values come by
 * address, because the call that writes them is another argument. */
static void keep(int result, const CUdeviceptr *pointer, const char *more, const size_t *value)
{
    if (result) {
        ANSWER("%d", result);
        return;
    }
    if (slots == SLOTS) {
        ANSWER("%d slots=%d", NOT_FOUND, SLOTS);
        return;
    }
    allocations[slots] = *pointer;
    ANSWER("0 slot=%zu %s=%zu", slots, more, *value);
    slots++;
}

static void use(const command *c)
{
    handle context = NULL;
    int result = CALL(cuDeviceGet, &device, (int)c->a);
    if (!result)
        result = CALL(cuDevicePrimaryCtxRetain, &context, device);
    if (!result)
        result = CALL(cuCtxSetCurrent, context);
    ANSWER("%d", result);
}

static void init(const command *c) { ANSWER("%d", CALL(cuInit, (unsigned)c->a)); }
static void release(const command *c) { (void)c; ANSWER("%d", CALL(cuDevicePrimaryCtxRelease_v2, device)); }

static void create(const command *c)
{
    handle context = NULL;
    int result = CALL(cuCtxCreate_v2, &context, 0, (int)c->a);
    ANSWER("%d context=%llu", result, (unsigned long long)(uintptr_t)context);
}

static void destroy(const command *c)
{
    ANSWER("%d", CALL(cuCtxDestroy_v2, (handle)(uintptr_t)c->a));
}

static void synchronize(const command *c)
{
    (void)c;
    ANSWER("%d", CALL(cuCtxSynchronize));
}

static void synchronize_stream(const command *c)
{
    (void)c;
    ANSWER("%d", CALL(cuStreamSynchronize, NULL));
}

static void info(const command *c)
{
    (void)c;
    size_t free = 0, total = 0;
    int result = CALL(cuMemGetInfo_v2, &free, &total);
    ANSWER("%d free=%zu total=%zu", result, free, total);
}

static void total(const command *c)
{
    (void)c;
    size_t bytes = 0;
    int result = CALL(cuDeviceTotalMem_v2, &bytes, device);
    ANSWER("%d total=%zu", result, bytes);
}

static void alloc(const command *c)
{
    CUdeviceptr pointer = 0;
    keep(CALL(cuMemAlloc_v2, &pointer, c->a), &pointer, "bytes", &c->a);
}

static void pitch(const command *c)
{
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    keep(CALL(cuMemAllocPitch_v2, &pointer, &bytes, c->a, c->b, 4), &pointer, "pitch", &bytes);
}

/* Never touched: where its pages are is the driver's affair until then. */
static void managed(const command *c)
{
    enum { ATTACH_GLOBAL = 1 };
    CUdeviceptr pointer = 0;
    keep(CALL(cuMemAllocManaged, &pointer, c->a, ATTACH_GLOBAL), &pointer, "bytes", &c->a);
}

static void async(const command *c)
{
    CUdeviceptr pointer = 0;
    keep(CALL(cuMemAllocAsync, &pointer, c->a, NULL), &pointer, "bytes", &c->a);
}

static void give_back(const command *c)
{
    unsigned long long start = now();
    int result = CALL(cuMemFree_v2, allocations[c->a % SLOTS]);
    ANSWER("%d ns=%llu", result, now() - start);
}

static void give_back_async(const command *c)
{
    ANSWER("%d", CALL(cuMemFreeAsync, allocations[c->a % SLOTS], NULL));
}

static void fill_bytes(const command *c)
{
    ANSWER("%d", CALL(cuMemsetD8_v2, allocations[c->a % SLOTS], 1, c->b));
}

static void default_pool(const command *c)
{
    (void)c;
    ANSWER("%d", CALL(cuDeviceGetDefaultMemPool, &pools[0], device));
}

static void create_pool(const command *c)
{
    enum { PINNED = 1, ON_DEVICE = 1 };
    pool_properties properties = {
        .allocation_type = PINNED, .location_type = ON_DEVICE, .location_id = device};
    (void)c;
    if (created == POOLS) {
        ANSWER("%d pools=%d", NOT_FOUND, POOLS);
        return;
    }
    int result = CALL(cuMemPoolCreate, &pools[created], &properties);
    ANSWER("%d pool=%zu", result, result ? 0 : created++);
}

static void destroy_pool(const command *c) { ANSWER("%d", CALL(cuMemPoolDestroy, pools[c->a % POOLS])); }
static void trim(const command *c) { ANSWER("%d", CALL(cuMemPoolTrimTo, pools[c->a % POOLS], c->b)); }

static void from_pool(const command *c)
{
    CUdeviceptr pointer = 0;
    keep(CALL(cuMemAllocFromPoolAsync, &pointer, c->b, pools[c->a % POOLS], NULL), &pointer, "bytes",
         &c->b);
}

static void pool_attribute(const command *c)
{
    uint64_t value = 0;
    int result = CALL(cuMemPoolGetAttribute, pools[c->a % POOLS], (int)c->b, &value);
    ANSWER("%d value=%llu", result, (unsigned long long)value);
}

static void set_pool_attribute(const command *c)
{
    uint64_t value = c->c;
    ANSWER("%d", CALL(cuMemPoolSetAttribute, pools[c->a % POOLS], (int)c->b, &value));
}

static void host(const command *c)
{
    void *pointer = NULL;
    int result = CALL(cuMemHostAlloc, &pointer, c->a, 0);
    ANSWER("%d host=%llu", result, (unsigned long long)(uintptr_t)pointer);
}

static void free_host(const command *c)
{
    ANSWER("%d", CALL(cuMemFreeHost, (void *)(uintptr_t)c->a));
}

static void register_host(const command *c)
{
    void *pointer =
        mmap(NULL, c->a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int result = CALL(cuMemHostRegister_v2, pointer, c->a, 0);
    ANSWER("%d host=%llu", result, (unsigned long long)(uintptr_t)pointer);
}

static void unregister_host(const command *c)
{
    ANSWER("%d", CALL(cuMemHostUnregister, (void *)(uintptr_t)c->a));
}

/* "module PATH": the PTX of one file. */
static handle module;

static void load(const command *c)
{
    static char image[65536];
    FILE *file = fopen(c->text, "r");
    if (!file) {
        ANSWER("%d unreadable=1", NOT_FOUND);
        return;
    }
    image[fread(image, 1, sizeof image - 1, file)] = '\0';
    fclose(file);
    ANSWER("%d", CALL(cuModuleLoadData, &module, image));
}

/* Launches the kernel of this name in the module loaded last, with one thread: "launch NAME a b". */
static void launch(const command *c)
{
    static handle function;
    unsigned long long first = c->b, second = c->c;
    void *parameters[] = {&first, &second};
    int result = CALL(cuModuleGetFunction, &function, module, c->text);
    if (!result)
        result = CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    ANSWER("%d", result);
}

static const struct { const char *name; void (*run)(const command *); } commands[] = {
    {"init", init}, {"use", use}, {"release", release}, {"create", create}, {"destroy", destroy},
    {"sync", synchronize}, {"sync_stream", synchronize_stream}, {"info", info}, {"total", total},
    {"alloc", alloc}, {"pitch", pitch}, {"managed", managed}, {"async", async},
    {"free", give_back}, {"free_async", give_back_async}, {"memset", fill_bytes},
    {"default_pool", default_pool}, {"create_pool", create_pool}, {"destroy_pool", destroy_pool},
    {"trim", trim}, {"from_pool", from_pool}, {"pool_attribute", pool_attribute},
    {"set_pool_attribute", set_pool_attribute}, {"host", host}, {"free_host", free_host},
    {"register", register_host}, {"unregister", unregister_host}, {"module", load},
    {"launch", launch},
};

static void obey(const command *c)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, c->name) == 0) {
            commands[i].run(c);
            return;
        }
    ANSWER("%d unknown=1", NOT_FOUND);
}

int main(int argc, char **argv)
{
    char line[1024];
    by_lookup = argc > 1 && strcmp(argv[1], "lookup") == 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        command c = {0};
        /* "module" and "launch" have a text where the others have their first number. */
        sscanf(line, "%63s %511s %zu %zu", c.name, c.text, &c.b, &c.c);
        c.a = strtoull(c.text, NULL, 10);
        obey(&c);
    }
    return 0;
}
