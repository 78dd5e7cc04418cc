// What one call costs: prints "name nanoseconds" lines, each the fastest of many rounds.
//
// Run bare and with the library preloaded, the difference is our part. Calls are measured in the
// processor time of the thread that makes them: a share makes a thread wait, which is what it is for
// and no cost of the call. The fastest round is taken because everything that disturbs a round makes
// it slower. cuInit, which is made once, takes what passes on the clock.
//
//   calls all IMAGE PART [NAME]...
//                            these calls, or all; PART divides the number of calls, for drivers
//                            slower than the in-process stub, which then also has fewer rounds
//   calls hold IMAGE         one more process of the slice, until its input ends
//   calls NAME IMAGE COUNT   just so many of these calls, for a tool that counts instructions
//
// IMAGE is a file of PTX with a kernel "empty".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
typedef void *handle;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(handle *context, int device);
int cuCtxSetCurrent(handle context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
int cuMemFree_v2(CUdeviceptr pointer);
int cuMemGetInfo_v2(size_t *free, size_t *total);

typedef struct {
    int type, handle_types, location_type, location;
    void *win32;
    unsigned char flags[8];
} allocation_properties;
int cuMemGetAllocationGranularity(size_t *bytes, const allocation_properties *properties, int option);
int cuMemCreate(unsigned long long *memory, size_t bytes, const allocation_properties *properties,
                unsigned long long flags);
int cuMemRelease(unsigned long long memory);
int cuMemExportToShareableHandle(void *descriptor, unsigned long long memory, int type,
                                 unsigned long long flags);
int cuMemAddressReserve(CUdeviceptr *range, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags);
int cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, unsigned long long memory,
             unsigned long long flags);
int cuMemUnmap(CUdeviceptr pointer, size_t bytes);

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} array_description;
int cuArrayCreate_v2(handle *array, const array_description *description);
int cuArrayDestroy(handle array);
int cuModuleLoadData(handle *module, const void *image);
int cuModuleGetFunction(handle *function, handle module, const char *name);
int cuLaunchKernel(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, handle stream, void **parameters, void **extra);

typedef struct {
    unsigned grid[3], block[3], shared;
    handle stream;
    void *attributes;
    unsigned attribute_count;
} configuration;
int cuLaunchKernel_ptsz(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, handle stream, void **parameters, void **extra);
int cuLaunchKernelEx(const configuration *configuration, handle function, void **parameters,
                     void **extra);

enum { LIVE = 20000, KERNELS = 64 };

static void must(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "%s: CUresult %d\n", call, result);
        exit(1);
    }
}

static double read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static double computed(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

// All the same, and yet so many: one from each copy of the module.
static handle kernels[KERNELS];
static CUdeviceptr live[LIVE], anchor;

static void alloc_free(int calls) {
    for (int i = 0; i < calls; i++) {
        CUdeviceptr pointer;
        must(cuMemAlloc_v2(&pointer, 4096), "cuMemAlloc");
        must(cuMemFree_v2(pointer), "cuMemFree");
    }
}

// One granule: created, mapped, unmapped, released.
static void map_unmap(int calls) {
    static const allocation_properties on_first_device = {.type = 1, .location_type = 1};
    static size_t granule;
    static CUdeviceptr range;
    if (range == 0) {
        must(cuMemGetAllocationGranularity(&granule, &on_first_device, 0),
             "cuMemGetAllocationGranularity");
        must(cuMemAddressReserve(&range, granule, 0, 0, 0), "cuMemAddressReserve");
    }
    for (int i = 0; i < calls; i++) {
        unsigned long long memory;
        must(cuMemCreate(&memory, granule, &on_first_device, 0), "cuMemCreate");
        must(cuMemMap(range, granule, 0, memory, 0), "cuMemMap");
        must(cuMemUnmap(range, granule), "cuMemUnmap");
        must(cuMemRelease(memory), "cuMemRelease");
    }
}

static void array_create_destroy(int calls) {
    static const array_description floats = {64, 64, 0x20, 1};
    for (int i = 0; i < calls; i++) {
        handle array;
        must(cuArrayCreate_v2(&array, &floats), "cuArrayCreate");
        must(cuArrayDestroy(array), "cuArrayDestroy");
    }
}

static void memory_info(int calls) {
    size_t free_bytes, total;
    for (int i = 0; i < calls; i++)
        must(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
}

static void launch_in_turn(int calls, int count) {
    for (int i = 0; i < calls; i++)
        must(cuLaunchKernel(kernels[i % count], 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
             "cuLaunchKernel");
}

static void launch(int calls) { launch_in_turn(calls, 1); }
static void launch_two(int calls) { launch_in_turn(calls, 2); }
static void launch_64(int calls) { launch_in_turn(calls, KERNELS); }

static void launch_configured(int calls) {
    static const configuration one = {{1, 1, 1}, {32, 1, 1}, 0, NULL, NULL, 0};
    for (int i = 0; i < calls; i++)
        must(cuLaunchKernelEx(&one, kernels[0], NULL, NULL), "cuLaunchKernelEx");
}

static void launch_own_stream(int calls) {
    for (int i = 0; i < calls; i++)
        must(cuLaunchKernel_ptsz(kernels[0], 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
             "cuLaunchKernel_ptsz");
}

// What can be asked for by name.
static const struct call {
    const char *name;
    void (*make)(int calls);
    int calls, rounds;
} all_calls[] = {
    {"alloc_free", alloc_free, 20000, 50},
    {"map_unmap", map_unmap, 5000, 50},
    {"array_create_destroy", array_create_destroy, 5000, 50},
    {"memory_info", memory_info, 100000, 50},
    // Under a share many batches each, and so with all that is done once in a while.
    {"launch", launch, 20000, 100},
    {"launch_two", launch_two, 20000, 100},
    {"launch_64", launch_64, 20000, 100},
    {"launch_configured", launch_configured, 20000, 100},
    {"launch_own_stream", launch_own_stream, 20000, 100},
};

enum { CALLS = sizeof all_calls / sizeof *all_calls };

static void report(const struct call *call, int calls, int rounds) {
    static const struct timespec pause = {.tv_nsec = 5000000};
    double best = 1e18;
    for (int round = 0; round < rounds; round++) {
        // What a round has queued is not the next one's to wait for, and what it has spent of a share
        // has come back.
        must(cuCtxSynchronize(), "cuCtxSynchronize");
        nanosleep(&pause, NULL);
        double start = computed();
        call->make(calls);
        double each = (computed() - start) / calls;
        best = each < best ? each : best;
    }
    printf("%s %.2f\n", call->name, best);
}

// Frees in the order that is worst for a list, in an order of its own each round.
static void report_free_with_many_live(int rounds) {
    double best = 1e18;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < LIVE; i++)
            must(cuMemAlloc_v2(&live[i], 4096), "cuMemAlloc");
        for (int i = LIVE - 1; i > 0; i--) {
            int other = (int)(((unsigned)rand()) % (i + 1));
            CUdeviceptr swap = live[i];
            live[i] = live[other];
            live[other] = swap;
        }
        double start = computed();
        for (int i = 0; i < LIVE; i++)
            must(cuMemFree_v2(live[i]), "cuMemFree");
        double each = (computed() - start) / LIVE;
        best = each < best ? each : best;
    }
    printf("free_20000_live %.2f\n", best);
}

// Memory that is exported, and whose descriptor is closed again; 0 if the card is too small.
static unsigned long long export(void) {
    static const allocation_properties exportable = {.type = 1, .handle_types = 1, .location_type = 1};
    unsigned long long memory;
    int descriptor;
    if (cuMemCreate(&memory, 2 << 20, &exportable, 0) != 0)
        return 0;
    must(cuMemExportToShareableHandle(&descriptor, memory, 1, 0), "cuMemExportToShareableHandle");
    must(close(descriptor), "close");
    return memory;
}

// Releases exported memory while so many more allocations are exported.
static void report_release(int exported, int rounds) {
    enum { RELEASES = 20 };
    static unsigned long long others[4000], released[RELEASES];
    double best = 1e18;
    size_t free, total;
    for (int i = 0; i < exported; i++) {
        if ((others[i] = export()) == 0)
            return;
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < RELEASES; i++) {
            if ((released[i] = export()) == 0)
                return;
        }
        double start = computed();
        for (int i = 0; i < RELEASES; i++)
            must(cuMemRelease(released[i]), "cuMemRelease");
        double each = (computed() - start) / RELEASES;
        best = each < best ? each : best;
        must(cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
    }
    for (int i = 0; i < exported; i++)
        must(cuMemRelease(others[i]), "cuMemRelease");
    printf("release_%d_exported %.2f\n", exported, best);
}

static int is_named(const char *name, char **names, int count) {
    for (int i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0)
            return 1;
    }
    return count == 0;
}

static int only(const char *name, int calls) {
    for (int i = 0; i < CALLS; i++) {
        if (strcmp(name, all_calls[i].name) == 0) {
            all_calls[i].make(calls);
            return 0;
        }
    }
    fprintf(stderr, "no call %s\n", name);
    return 2;
}

// Says when an allocation is granted again, or refused again, until it is killed.
static void watch(size_t bytes) {
    int granted = -1;
    for (;;) {
        CUdeviceptr pointer;
        int now = cuMemAlloc_v2(&pointer, bytes) == 0;
        double at = read_clock(CLOCK_MONOTONIC);
        if (now)
            must(cuMemFree_v2(pointer), "cuMemFree");
        if (now != granted) {
            printf("%s %.0f\n", now ? "granted" : "refused", at);
            fflush(stdout);
            granted = now;
        }
        usleep(100);
    }
}

static char *read_all(const char *path) {
    static char image[65536];
    FILE *file = fopen(path, "r");
    must(file == NULL, path);
    image[fread(image, 1, sizeof image - 1, file)] = '\0';
    fclose(file);
    return image;
}

int main(int argc, char **argv) {
    handle context, module;
    if (argc < 3) {
        fprintf(stderr, "usage: calls all|hold|watch|NAME IMAGE [PART|MIB|COUNT] [NAME]...\n");
        return 2;
    }
    const char *job = argv[1];
    double start = read_clock(CLOCK_MONOTONIC);
    must(cuInit(0), "cuInit");
    double initialised = read_clock(CLOCK_MONOTONIC) - start;
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    const char *image = read_all(argv[2]);
    for (int i = 0; i < KERNELS; i++) {
        must(cuModuleLoadData(&module, image), "cuModuleLoadData");
        must(cuModuleGetFunction(&kernels[i], module, "empty"), "cuModuleGetFunction");
    }
    if (strcmp(job, "hold") == 0) {
        must(cuMemAlloc_v2(&live[0], 4096), "cuMemAlloc");
        puts("holding");
        fflush(stdout);
        getchar();
        return 0;
    }
    int number = argc > 3 ? atoi(argv[3]) : 1;
    if (strcmp(job, "watch") == 0)
        watch((size_t)number << 20);
    if (strcmp(job, "all") != 0)
        return only(job, number);
    // While there is another allocation in the driver's page, it need not take and give back pages.
    must(cuMemAlloc_v2(&anchor, 4096), "cuMemAlloc");
    printf("cuinit %.0f\n", initialised);
    char **names = argv + 4;
    int count = argc > 4 ? argc - 4 : 0;
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &all_calls[i];
        if (is_named(call->name, names, count))
            report(call, call->calls / number, number > 1 ? call->rounds / 4 : call->rounds);
    }
    if (is_named("free_20000_live", names, count))
        report_free_with_many_live(number > 1 ? 2 : 20);
    // The stub keeps descriptors of all that is exported.
    struct rlimit descriptors;
    getrlimit(RLIMIT_NOFILE, &descriptors);
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
    if (is_named("release_10_exported", names, count))
        report_release(10, 20);
    if (is_named("release_4000_exported", names, count))
        report_release(4000, 20);
    return 0;
}
