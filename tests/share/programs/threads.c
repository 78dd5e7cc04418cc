// build: -ldl -pthread
/* threads SECONDS THREADS CONTEXTS US BLOCKS AHEAD PAUSE_US [default]: threads launch kernels of US
 * microseconds and BLOCKS blocks, each in its own stream in one of the contexts. Each sleeps for
 * PAUSE_US after each kernel, and waits after every AHEAD kernels. With `default`, a thread's own
 * stream is its default stream (as after `nvcc --default-stream per-thread`).
 *
 * One JSON line at the end: completed kernels. */
#include <pthread.h>
#include "plain.h"

enum { MOST = 64 };

static handle contexts[MOST], functions[MOST];
static int context_count, has_default_streams;
static unsigned thread_count;
static unsigned blocks, ahead, pause_us;
static uint64_t end, completed;

static void sleep_us(unsigned us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (us)
        nanosleep(&time, NULL);
}

static void open_context(int i, const char *us)
{
    if (i == 0)
        contexts[i] = use_card(0);
    else
        DO(cuCtxCreate_v2, &contexts[i], 0, 0);
    functions[i] = kernel_of_us(us);
}

static void launch_and_sleep(handle function, handle stream)
{
    if (stream)
        launch(function, blocks, stream);
    else
        DO(cuLaunchKernel_ptsz, function, blocks, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    sleep_us(pause_us);
}

static void *run(void *number)
{
    int own = (int)((uintptr_t)number % (unsigned)context_count);
    uint64_t done = 0;
    DO(cuCtxSetCurrent, contexts[own]);
    handle stream = has_default_streams ? NULL : new_stream();
    /* Not all at the same time. */
    sleep_us(pause_us * (unsigned)(uintptr_t)number / thread_count);
    while (now() < end) {
        for (unsigned i = 0; i < ahead; i++)
            launch_and_sleep(functions[own], stream);
        DO(cuStreamSynchronize_ptsz, stream);
        done += ahead;
    }
    __atomic_fetch_add(&completed, done, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc >= 8 ? atoi(argv[2]) : 0;
    context_count = argc >= 8 ? atoi(argv[3]) : 0;
    has_default_streams = argc > 8;
    if (threads < 1 || threads > MOST || context_count < 1 || context_count > MOST) {
        fprintf(stderr, "threads: SECONDS THREADS CONTEXTS US BLOCKS AHEAD PAUSE_US, up to %d of both\n", MOST);
        return 2;
    }
    thread_count = (unsigned)threads;
    blocks = (unsigned)atoi(argv[5]);
    ahead = (unsigned)atoi(argv[6]);
    pause_us = (unsigned)atoi(argv[7]);
    open_driver();
    for (int i = 0; i < context_count; i++)
        open_context(i, argv[4]);
    uint64_t start = now();
    end = after(start, argv[1]);
    pthread_t running[MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&running[i], NULL, run, (void *)(uintptr_t)i);
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    return 0;
}
