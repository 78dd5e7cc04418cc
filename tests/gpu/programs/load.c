// build: -ldl -lm
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
 * server   answers requests of --chain kernels that arrive at random, for --busy-percent of the time;
 *          with the same --seed the same requests arrive
 * meet     two processes whose kernels wait for each other: a kernel in each, a wait, again. One of
 *          them reports: its kernels are the rounds
 * meet-streams  the same in two blocking streams of one process
 * calibrate  prints how many rounds of the spinning loop last a microsecond, for --rounds-per-us
 *
  * The last line of standard output is one JSON object: launched and completed kernels, work_ns (the sum
  * of the completed kernels' durations by their names), start_ns by CLOCK_MONOTONIC, and elapsed_ns.
  * With --steps it has the steps of a program that waits: for each, when it began after start_ns, and
  * how long it took until its kernels were done. A request begins when it arrives.
  * Kernels are in spin.h, counting in progress.h, the command line in options.h. */
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "driver.h"
#include "options.h"
#include "progress.h"
#include "spin.h"

enum { DEVICE_BUFFER = 1 << 20, BLOCKING = 0, PAGE = 4096 };

static options set;
static struct { handle function; unsigned us; } kernels[LIST];
static size_t turn;
static uint64_t begun, end;

static handle captured;
static amount captured_amount;

static int meets(void) { return set.work == MEET || set.work == MEET_STREAMS; }

static char *ptx(void)
{
    unsigned different[LIST];
    size_t count = distinct(&set, different);
    return spin_ptx(meets() ? meet_entry : spin_entry, different, count);
}

static void start_device(void)
{
    handle context, module;
    int device;
    DO(cuInit, 0);
    must(CALL(cuDeviceGet, &device, set.device), "cuDeviceGet of --device");
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    char *image = ptx();
    if (!image)
        must(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
    DO(cuModuleLoadData, &module, image);
    free(image);
    for (size_t i = 0; i < set.kernel_count; i++) {
        char name[48];
        snprintf(name, sizeof name, meets() ? "meet_%uus_meets2_streams" : "spin_%uus", set.kernel_us[i]);
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

/* With --steps: when each step began, and how long it took. */
static struct { struct step { uint64_t begin, ns; } *all; size_t count, room; } steps;

static void note_step(uint64_t begin)
{
    if (!set.steps)
        return;
    if (steps.count == steps.room) {
        steps.room = steps.room ? 2 * steps.room : 1024;
        steps.all = realloc(steps.all, steps.room * sizeof *steps.all);
        if (!steps.all)
            must(CUDA_ERROR_OUT_OF_MEMORY, "realloc");
    }
    steps.all[steps.count++] = (struct step){begin - begun, now() - begin};
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void run_waiting(amount (*each)(handle stream))
{
    lane *l = &lanes[0];
    while (now() < end) {
        uint64_t begin = now();
        l->launched = plus(l->launched, each(l->stream));
        wait_for(l);
        note_step(begin);
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

static void run_bursty(void)
{
    lane *l = &lanes[0];
    uint64_t busy = set.period_us * 10ull * set.busy_percent;
    for (uint64_t begin = begun; begin < end; begin += set.period_us * 1000ull) {
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

/* From 0 to 1, both excluded; Knuth's MMIX generator. */
static double random_part(void)
{
    set.seed = set.seed * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(set.seed >> 12) + 0.5) / (double)(1ull << 52);
}

/* Requests wait for their turn: a late answer delays the next ones, and counts for them too. */
static void run_server(void)
{
    lane *l = &lanes[0];
    double mean_ns = set.kernel_us[0] * 1e5 * set.chain / set.busy_percent, arrival_ns = 0;
    for (;;) {
        arrival_ns -= mean_ns * log(random_part());
        uint64_t arrival = begun + (uint64_t)arrival_ns;
        if (arrival >= end || now() >= end)
            break;
        sleep_until(arrival);
        l->launched = plus(l->launched, launch_chain(l->stream));
        wait_for(l);
        note_step(arrival);
        tick();
    }
    if (now() < end)
        sleep_until(end);
}

/* A page that two processes and their kernels see. */
static struct meeting {
    struct { volatile uint64_t turn, gave_up; } flags[2];
    volatile uint64_t ready, last;
} *meeting;

/* This process's place: it writes to its own flag. 0 leads. */
static int place;
static pid_t follower;

/* Before the driver is loaded, because a child cannot use its parent's. */
static void prepare_meeting(void)
{
    meeting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED)
        must(CUDA_ERROR_OUT_OF_MEMORY, "mmap");
    meeting->last = UINT64_MAX;
    if (set.work != MEET)
        return;
    follower = fork();
    if (follower < 0)
        must(CUDA_ERROR_OUT_OF_MEMORY, "fork");
    place = follower == 0;
    if (place == 1 && !freopen("/dev/null", "w", stdout))
        exit(1);
}

static void launch_meeting(CUdeviceptr page, int own, uint64_t turn, handle stream)
{
    uint64_t rounds = set.rounds_per_us * kernels[0].us;
    CUdeviceptr mine = page + (size_t)own * sizeof meeting->flags[0];
    CUdeviceptr theirs = page + (size_t)!own * sizeof meeting->flags[0];
    void *parameters[] = {&rounds, &mine, &theirs, &turn};
    DO(cuLaunchKernel, kernels[0].function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}

static void wait_for_both(void)
{
    uint64_t late = now() + 20000000000ull;
    __atomic_fetch_add(&meeting->ready, 1, __ATOMIC_SEQ_CST);
    while (set.work == MEET && meeting->ready < 2) {
        if (now() > late) {
            fprintf(stderr, "load: the other process is not there after 20 s\n");
            exit(1);
        }
        usleep(100);
    }
}

/* The leader decides that a round is the last one before it launches that, so the other one ends too. */
static void run_meeting(CUdeviceptr page)
{
    lane *l = &lanes[0];
    for (uint64_t turn = 1; turn <= meeting->last; turn++) {
        uint64_t begin = now();
        launch_meeting(page, place, turn, l->stream);
        if (set.work == MEET_STREAMS) {
            launch_meeting(page, 1, turn, lanes[1].stream);
            DO(cuStreamSynchronize, lanes[1].stream);
        }
        l->launched = plus(l->launched, (amount){1, kernels[0].us * 1000ull});
        wait_for(l);
        if (meeting->flags[0].gave_up || meeting->flags[1].gave_up) {
            fprintf(stderr, "load: a kernel waited 4 s for the other one in round %llu\n",
                    (unsigned long long)turn);
            exit(1);
        }
        note_step(begin);
        tick();
        if (place == 0 && now() >= end && meeting->last == UINT64_MAX)
            meeting->last = turn + 1;
    }
}

static CUdeviceptr meeting_page(void)
{
    enum { PORTABLE_AND_MAPPED = 3 };
    CUdeviceptr page;
    DO(cuMemHostRegister_v2, meeting, PAGE, PORTABLE_AND_MAPPED);
    DO(cuMemHostGetDevicePointer_v2, &page, meeting, 0);
    return page;
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

static void report(void)
{
    /* In this order, so that the time is not before the count. */
    amount done = all_done();
    uint64_t elapsed = now() - begun;
    printf("{\"work\": \"%s\", \"pid\": %d, \"launched\": %llu, \"completed\": %llu, \"work_ns\": %llu, "
           "\"start_ns\": %llu, \"elapsed_ns\": %llu",
           work_names[set.work], (int)getpid(), (unsigned long long)all_launched().launches,
           (unsigned long long)done.launches, (unsigned long long)done.ns,
           (unsigned long long)begun, (unsigned long long)elapsed);
    if (set.work == BURSTY) {
        printf(", \"late_ns\": [");
        for (size_t i = 0; i < late.count; i++)
            printf("%s%lld", i ? ", " : "", (long long)late.ns[i]);
        printf("]");
    }
    for (size_t i = 0; i < steps.count; i++)
        printf("%s[%llu, %llu]", i ? ", " : ", \"steps\": [", (unsigned long long)steps.all[i].begin,
               (unsigned long long)steps.all[i].ns);
    printf(steps.count ? "]}\n" : "}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    set = read_options(argc, argv);
    if (set.print_ptx) {
        fputs(ptx(), stdout);
        return 0;
    }
    if (meets())
        prepare_meeting();
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "load: %s\n", dlerror());
        return 1;
    }
    start_device();
    size_t streams = set.work == STREAMS ? 4 : set.work == MIXED || set.work == MEET_STREAMS ? 2 : 1;
    for (size_t i = 0; i < streams; i++)
        add_lane(set.work == MEET_STREAMS ? BLOCKING : CU_STREAM_NON_BLOCKING);
    if (set.work == CALIBRATE)
        return calibrate();
    if (set.work == GRAPH)
        capture();
    CUdeviceptr page = meets() ? meeting_page() : 0;
    if (meets())
        wait_for_both();
    begun = now();
    end = begun + (uint64_t)(set.seconds * 1e9);
    queue_limit_ns = set.queue_ms * 1000000ull;
    begin_ticks(begun, set.tick_ms * 1000000ull);
    switch (set.work) {
    case ASYNC:
    case STREAMS: run_saturating(launch_next); break;
    case GRAPH: run_saturating(launch_graph); break;
    case SYNC: run_waiting(launch_next); break;
    case DECODE: run_waiting(launch_chain); break;
    case MIXED: run_mixed(); break;
    case BURSTY: run_bursty(); break;
    case SERVER: run_server(); break;
    case MEET:
    case MEET_STREAMS: run_meeting(page); break;
    case CALIBRATE: break;
    }
    report();
    /* Leave no work on the card, which another program may measure next. */
    DO(cuCtxSynchronize);
    int status = 0;
    if (follower > 0 && (waitpid(follower, &status, 0) != follower || status)) {
        fprintf(stderr, "load: the other process ended with status %d\n", status);
        return 1;
    }
    return 0;
}
