// What one call costs: prints "name nanoseconds" lines, each the fastest of many rounds.
//
// Run bare and with the library preloaded, the difference is our part. The fastest round is taken
// because everything that disturbs a round makes it slower.
//
//   calls all IMAGE PART     everything; PART divides the number of calls, for drivers slower than
//                            the in-process stub
//   calls hold IMAGE         one more process of the slice, until its input ends
//   calls NAME IMAGE COUNT   just so many of these calls, for a tool that counts instructions
//
// IMAGE is a file of PTX with a kernel "empty" and a kernel "spin" that takes nanoseconds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long CUdeviceptr;
typedef void *handle;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(handle *context, int device);
int cuCtxSetCurrent(handle context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
int cuMemFree_v2(CUdeviceptr pointer);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuModuleLoadData(handle *module, const void *image);
int cuModuleGetFunction(handle *function, handle module, const char *name);
int cuLaunchKernel(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, handle stream, void **parameters, void **extra);

enum { LIVE = 20000 };

static void must(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "%s: CUresult %d\n", call, result);
        exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static handle function, other;
static CUdeviceptr live[LIVE], anchor;

static void alloc_free(int calls) {
    for (int i = 0; i < calls; i++) {
        CUdeviceptr pointer;
        must(cuMemAlloc_v2(&pointer, 4096), "cuMemAlloc");
        must(cuMemFree_v2(pointer), "cuMemFree");
    }
}

static void memory_info(int calls) {
    size_t free_bytes, total;
    for (int i = 0; i < calls; i++)
        must(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
}

static void launch(int calls) {
    for (int i = 0; i < calls; i++)
        must(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
}

// What is remembered of the last launch does not help with the next.
static void launch_alternating(int calls) {
    unsigned long long nanoseconds = 0;
    void *parameters[] = {&nanoseconds};
    for (int i = 0; i < calls; i++)
        must(cuLaunchKernel(i % 2 ? other : function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
             "cuLaunchKernel");
}

static void report(const char *name, void (*body)(int), int calls, int rounds) {
    double best = 1e18;
    for (int round = 0; round < rounds; round++) {
        // What a round has queued is not the next one's to wait for.
        must(cuCtxSynchronize(), "cuCtxSynchronize");
        double start = now();
        body(calls);
        double each = (now() - start) / calls;
        best = each < best ? each : best;
    }
    printf("%s %.2f\n", name, best);
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
        double start = now();
        for (int i = 0; i < LIVE; i++)
            must(cuMemFree_v2(live[i]), "cuMemFree");
        double each = (now() - start) / LIVE;
        best = each < best ? each : best;
    }
    printf("free_20000_live %.2f\n", best);
}

static void only(const char *name, int calls) {
    if (strcmp(name, "launch") == 0)
        launch(calls);
    else if (strcmp(name, "alloc_free") == 0)
        alloc_free(calls);
    else
        memory_info(calls);
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
        fprintf(stderr, "usage: calls all|hold|NAME IMAGE [PART|COUNT]\n");
        return 2;
    }
    const char *job = argv[1];
    double start = now();
    must(cuInit(0), "cuInit");
    double initialised = now() - start;
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuModuleLoadData(&module, read_all(argv[2])), "cuModuleLoadData");
    must(cuModuleGetFunction(&function, module, "empty"), "cuModuleGetFunction");
    must(cuModuleGetFunction(&other, module, "spin"), "cuModuleGetFunction");
    if (strcmp(job, "hold") == 0) {
        must(cuMemAlloc_v2(&live[0], 4096), "cuMemAlloc");
        puts("holding");
        fflush(stdout);
        getchar();
        return 0;
    }
    int number = argc > 3 ? atoi(argv[3]) : 1;
    if (strcmp(job, "all") != 0) {
        only(job, number);
        return 0;
    }
    // While there is another allocation in the driver's page, it need not take and give back pages.
    must(cuMemAlloc_v2(&anchor, 4096), "cuMemAlloc");
    printf("cuinit %.0f\n", initialised);
    report("alloc_free", alloc_free, 20000 / number, 50);
    report("memory_info", memory_info, 100000 / number, 50);
    // Long enough for what is done once in a while, under a share every 2 ms.
    report("launch", launch, 1000000 / number, 10);
    report("launch_alternating", launch_alternating, 1000000 / number, 10);
    report_free_with_many_live(number > 1 ? 2 : 20);
    return 0;
}
