// build: -ldl -pthread
/* thread_streams SECONDS THREADS US BLOCKS AHEAD: threads launch kernels of US microseconds and
 * BLOCKS blocks. Each uses its own default stream (as after `nvcc --default-stream per-thread`),
 * and waits after every AHEAD kernels.
 *
 * One JSON line at the end: completed kernels. */
#include <pthread.h>
#include "plain.h"

enum { MOST = 64 };

static handle context, function;
static unsigned blocks;
static int ahead;
static uint64_t end, completed;

static void *run(void *unused)
{
    (void)unused;
    uint64_t done = 0;
    DO(cuCtxSetCurrent, context);
    while (now() < end) {
        for (int i = 0; i < ahead; i++)
            DO(cuLaunchKernel_ptsz, function, blocks, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        DO(cuStreamSynchronize_ptsz, NULL);
        done += (uint64_t)ahead;
    }
    __atomic_fetch_add(&completed, done, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc == 6 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > MOST) {
        fprintf(stderr, "thread_streams: SECONDS THREADS US BLOCKS AHEAD, 1 to %d threads\n", MOST);
        return 2;
    }
    open_driver();
    context = use_card(0);
    function = kernel_of_us(argv[3]);
    blocks = (unsigned)atoi(argv[4]);
    ahead = atoi(argv[5]);
    uint64_t start = now();
    end = after(start, argv[1]);
    pthread_t running[MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&running[i], NULL, run, NULL);
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    return 0;
}
