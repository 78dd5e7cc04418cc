// build: -ldl -pthread
/* gates ROUNDS THREADS US BEHIND HOW: in each round, each thread launches a kernel that spins
 * until it is opened, and BEHIND kernels of US microseconds behind it in the same stream. Then the
 * thread opens the first kernel, and waits for the stream. HOW is the way to open it:
 *
 * launch  by the launch of another kernel, in another stream
 * host    by a flag that the host sets without a call of the driver
 *
 * One JSON line at the end: elapsed_ns, and completed rounds of all threads. */
#include <pthread.h>
#include "plain.h"

enum { MOST = 64 };

/* A function of the stub: the host takes part in a collective in place of a stream. */
CUresult stub_arrive(CUfunction function);

static handle context, work;
static unsigned rounds, behind;
static int by_host;
static uint64_t completed;

static void open_gate(handle gate, handle other)
{
    if (by_host)
        DO(stub_arrive, gate);
    else
        launch(gate, 1, other);
}

static void *run(void *number)
{
    char name[64];
    DO(cuCtxSetCurrent, context);
    snprintf(name, sizeof name, "gate%u_1us_meets2_streams", (unsigned)(uintptr_t)number);
    handle gate = kernel(name), blocked = new_stream(), other = new_stream();
    for (unsigned round = 0; round < rounds; round++) {
        launch(gate, 1, blocked);
        for (unsigned i = 0; i < behind; i++)
            launch(work, 1, blocked);
        open_gate(gate, other);
        DO(cuStreamSynchronize, blocked);
        __atomic_fetch_add(&completed, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned threads = argc == 6 ? (unsigned)atoi(argv[2]) : 0;
    if (threads < 1 || threads > MOST) {
        fprintf(stderr, "gates: ROUNDS THREADS US BEHIND launch|host, 1 to %d threads\n", MOST);
        return 2;
    }
    rounds = (unsigned)atoi(argv[1]);
    behind = (unsigned)atoi(argv[4]);
    by_host = strcmp(argv[5], "host") == 0;
    open_driver();
    context = use_card(0);
    work = kernel_of_us(argv[3]);
    uint64_t start = now();
    pthread_t running[MOST];
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&running[i], NULL, run, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    printf("{\"start_ns\": %" PRIu64 ", \"elapsed_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start,
           now() - start, completed);
    return 0;
}
