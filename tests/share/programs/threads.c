// build: -ldl -pthread
/* threads SECONDS THREADS CONTEXTS US BLOCKS AHEAD PAUSE_US: so many threads, each with a stream of its own
 * and by turns in one of so many contexts, launch kernels of so many microseconds and blocks, sleep for
 * PAUSE_US after each, and wait after AHEAD of them.
 *
 * One JSON line at the end: completed kernels. */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "driver.h"

enum { MOST = 64 };

static handle contexts[MOST], functions[MOST];
static int context_count, device;
static unsigned thread_count;
static unsigned blocks, ahead, pause_us;
static uint64_t end, completed;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void sleep_us(unsigned us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (us)
        nanosleep(&time, NULL);
}

static void open_context(int i, const char *us)
{
    static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                              ".visible .entry spin_%sus()\n{\n    ret;\n}\n";
    char text[sizeof ptx + 16], name[64];
    snprintf(text, sizeof text, ptx, us);
    snprintf(name, sizeof name, "spin_%sus", us);
    handle module;
    if (i == 0)
        DO(cuDevicePrimaryCtxRetain, &contexts[i], device);
    else
        DO(cuCtxCreate_v2, &contexts[i], 0, device);
    DO(cuCtxSetCurrent, contexts[i]);
    DO(cuModuleLoadData, &module, text);
    DO(cuModuleGetFunction, &functions[i], module, name);
}

static void *run(void *number)
{
    enum { NON_BLOCKING = 1 };
    int own = (int)((uintptr_t)number % (unsigned)context_count);
    handle stream;
    uint64_t done = 0;
    DO(cuCtxSetCurrent, contexts[own]);
    DO(cuStreamCreate, &stream, NON_BLOCKING);
    /* Not all at the same time. */
    sleep_us(pause_us * (unsigned)(uintptr_t)number / thread_count);
    while (now() < end) {
        for (unsigned i = 0; i < ahead; i++) {
            DO(cuLaunchKernel, functions[own], blocks, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
            sleep_us(pause_us);
        }
        DO(cuStreamSynchronize, stream);
        done += ahead;
    }
    __atomic_fetch_add(&completed, done, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc == 8 ? atoi(argv[2]) : 0;
    context_count = argc == 8 ? atoi(argv[3]) : 0;
    if (threads < 1 || threads > MOST || context_count < 1 || context_count > MOST) {
        fprintf(stderr, "threads: give SECONDS THREADS CONTEXTS US BLOCKS AHEAD PAUSE_US, up to %d of both\n", MOST);
        return 2;
    }
    thread_count = (unsigned)threads;
    blocks = (unsigned)atoi(argv[5]);
    ahead = (unsigned)atoi(argv[6]);
    pause_us = (unsigned)atoi(argv[7]);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "threads: %s\n", dlerror());
        return 1;
    }
    DO(cuInit, 0);
    DO(cuDeviceGet, &device, 0);
    for (int i = 0; i < context_count; i++)
        open_context(i, argv[4]);
    uint64_t start = now();
    end = start + (uint64_t)(atof(argv[1]) * 1e9);
    pthread_t running[MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&running[i], NULL, run, (void *)(uintptr_t)i);
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    return 0;
}
