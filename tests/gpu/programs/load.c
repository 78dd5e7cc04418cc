// build: -ldl
/* Keeps a card busy in one of the ways of real programs, and reports how much the device has finished.
 *
 *     load --work WORK --kernel-us N[,N...] --seconds S [options]
 *
 * async    launches without end; waits only where --queue-ms of work are in flight
 * sync     waits for each launch, then --host-us of its own work (asleep)
 * graph    a captured graph of --chain kernels, launched again and again
 * streams  as async, on four streams by turns
 * mixed    copy to the card, kernel, copy back, on two streams by turns
  * bursty   --busy-percent of each --period-us, then nothing; periods begin on a grid, so that a late
  *          one is measured and does not delay the others
 * decode   a chain of --chain kernels, a wait, --host-us of host time, again
 * calibrate  prints how many rounds of the spinning loop last a microsecond, for --rounds-per-us
 *
  * The last line of standard output is one JSON object: launched and completed kernels, work_ns (the sum
  * of the completed kernels' durations by their names), start_ns by CLOCK_MONOTONIC, and elapsed_ns.
  * Kernels are in spin.h, counting in progress.h, the command line in options.h. */
#include "driver.h"
#include "options.h"
#include "progress.h"
#include "spin.h"

enum { DEVICE_BUFFER = 1 << 20 };

static options set;
static struct { handle function; unsigned us; } kernels[LIST];
static size_t turn;
static uint64_t end;

static handle captured;
static amount captured_amount;

static void start_device(void)
{
    handle context, module;
    int device;
    DO(cuInit, 0);
    must(CALL(cuDeviceGet, &device, set.device), "cuDeviceGet of --device");
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    unsigned different[LIST];
    size_t count = distinct(&set, different);
    char *ptx = spin_ptx(different, count);
    if (!ptx)
        must(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
    DO(cuModuleLoadData, &module, ptx);
    free(ptx);
    for (size_t i = 0; i < set.kernel_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "spin_%uus", set.kernel_us[i]);
        DO(cuModuleGetFunction, &kernels[i].function, module, name);
        kernels[i].us = set.kernel_us[i];
    }
}

static void launch(handle function, uint64_t rounds, handle stream)
{
    void *parameters[] = {&rounds};
    CUlaunchConfig config = {{1, 1, 1}, {32, 1, 1}, 0, stream, NULL, 0};
    switch (set.launcher) {
    case KERNEL:
        DO(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
        break;
    case EX:
        DO(cuLaunchKernelEx, &config, function, parameters, NULL);
        break;
    case COOPERATIVE:
        DO(cuLaunchCooperativeKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, parameters);
        break;
    }
}

/* The next kernel of the list. */
static amount launch_next(handle stream)
{
    size_t i = turn++ % set.kernel_count;
    launch(kernels[i].function, set.rounds_per_us * kernels[i].us, stream);
    return (amount){1, kernels[i].us * 1000ull};
}

static amount launch_chain(handle stream)
{
    amount sum = {0, 0};
    for (unsigned i = 0; i < set.chain; i++)
        sum = plus(sum, launch_next(stream));
    return sum;
}

static void capture(void)
{
    enum { MODE_THREAD_LOCAL = 1 };
    handle graph, stream = lanes[0].stream;
    DO(cuStreamBeginCapture_v2, stream, MODE_THREAD_LOCAL);
    captured_amount = launch_chain(stream);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphInstantiateWithFlags, &captured, graph, 0);
}

static amount launch_graph(handle stream)
{
    DO(cuGraphLaunch, captured, stream);
    return captured_amount;
}

static void wait_for(lane *l)
{
    if (set.wait == CONTEXT)
        DO(cuCtxSynchronize);
    else
        DO(cuStreamSynchronize, l->stream);
    finish_lane(l);
}

/* Launches on each lane in turn, until the time is over. */
static void run_saturating(amount (*each)(handle stream))
{
    for (size_t i = 0; now() < end; i++) {
        lane *l = &lanes[i % lane_count];
        make_room(l);
        launched(l, each(l->stream));
        tick();
    }
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void run_waiting(amount (*each)(handle stream))
{
    lane *l = &lanes[0];
    while (now() < end) {
        l->launched = plus(l->launched, each(l->stream));
        wait_for(l);
        tick();
        if (set.host_us)
            sleep_until(earlier(now() + set.host_us * 1000ull, end));
    }
}

static void run_mixed(void)
{
    CUdeviceptr device[2];
    void *host[2];
    for (size_t i = 0; i < 2; i++) {
        DO(cuMemAlloc_v2, &device[i], DEVICE_BUFFER);
        DO(cuMemHostAlloc, &host[i], DEVICE_BUFFER, 0);
    }
    for (size_t i = 0; now() < end; i++) {
        lane *l = &lanes[i % 2];
        make_room(l);
        DO(cuMemcpyHtoDAsync_v2, device[i % 2], host[i % 2], DEVICE_BUFFER, l->stream);
        amount more = launch_next(l->stream);
        DO(cuMemcpyDtoHAsync_v2, host[i % 2], device[i % 2], DEVICE_BUFFER, l->stream);
        launched(l, more);
        tick();
    }
}

/* For each period, the nanoseconds from when its work could have been done to when it was done. */
static struct { int64_t *ns; size_t count, room; } late;

static void note_late(int64_t ns)
{
    if (late.count == late.room) {
        late.room = late.room ? 2 * late.room : 1024;
        late.ns = realloc(late.ns, late.room * sizeof *late.ns);
        if (!late.ns)
            must(CUDA_ERROR_OUT_OF_MEMORY, "realloc");
    }
    late.ns[late.count++] = ns;
}

static void run_bursty(uint64_t start)
{
    lane *l = &lanes[0];
    uint64_t busy = set.period_us * 10ull * set.busy_percent;
    for (uint64_t begin = start; begin < end; begin += set.period_us * 1000ull) {
        sleep_until(begin);
        amount burst = {0, 0};
        while (burst.ns < busy)
            burst = plus(burst, launch_next(l->stream));
        l->launched = plus(l->launched, burst);
        wait_for(l);
        note_late((int64_t)(now() - begin - burst.ns));
        tick();
    }
    /* The last period's quiet part belongs to it. */
    if (now() < end)
        sleep_until(end);
}

/* The shorter of many times that so many rounds take. */
static uint64_t fastest(uint64_t rounds)
{
    enum { TRIES = 20 };
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start = now();
        launch(kernels[0].function, rounds, lanes[0].stream);
        DO(cuStreamSynchronize, lanes[0].stream);
        uint64_t took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

/* By a difference, so that a launch's own cost does not count. The stub computes nothing: 0. */
static int calibrate(void)
{
    enum { ROUNDS = 1000000 };
    uint64_t once = fastest(ROUNDS), twice = fastest(2 * ROUNDS);
    int computes = twice > once + once / 2;
    uint64_t per_us = computes ? ROUNDS * 1000ull / (twice - once) : 0;
    printf("{\"rounds_per_us\": %llu}\n", (unsigned long long)per_us);
    return 0;
}

static void report(uint64_t start)
{
    /* In this order, so that the time is not before the count. */
    amount done = all_done();
    uint64_t elapsed = now() - start;
    printf("{\"work\": \"%s\", \"pid\": %d, \"launched\": %llu, \"completed\": %llu, \"work_ns\": %llu, "
           "\"start_ns\": %llu, \"elapsed_ns\": %llu",
           work_names[set.work], (int)getpid(), (unsigned long long)all_launched().launches,
           (unsigned long long)done.launches, (unsigned long long)done.ns,
           (unsigned long long)start, (unsigned long long)elapsed);
    if (set.work == BURSTY) {
        printf(", \"late_ns\": [");
        for (size_t i = 0; i < late.count; i++)
            printf("%s%lld", i ? ", " : "", (long long)late.ns[i]);
        printf("]");
    }
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    set = read_options(argc, argv);
    if (set.print_ptx) {
        unsigned different[LIST];
        fputs(spin_ptx(different, distinct(&set, different)), stdout);
        return 0;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "load: %s\n", dlerror());
        return 1;
    }
    start_device();
    size_t streams = set.work == STREAMS ? 4 : set.work == MIXED ? 2 : 1;
    for (size_t i = 0; i < streams; i++)
        add_lane();
    if (set.work == CALIBRATE)
        return calibrate();
    if (set.work == GRAPH)
        capture();
    uint64_t start = now();
    end = start + (uint64_t)(set.seconds * 1e9);
    queue_limit_ns = set.queue_ms * 1000000ull;
    begin_ticks(start, set.tick_ms * 1000000ull);
    switch (set.work) {
    case ASYNC:
    case STREAMS: run_saturating(launch_next); break;
    case GRAPH: run_saturating(launch_graph); break;
    case SYNC: run_waiting(launch_next); break;
    case DECODE: run_waiting(launch_chain); break;
    case MIXED: run_mixed(); break;
    case BURSTY: run_bursty(start); break;
    case CALIBRATE: break;
    }
    report(start);
    /* Leave no work on the card, which another program may measure next. */
    DO(cuCtxSynchronize);
    return 0;
}
