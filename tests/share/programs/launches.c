// build: -ldl -pthread
/* launches SECONDS US WAY: launches kernels of US microseconds in one of the ways below, and waits
 * for the card after every few of them.
 *
 * One JSON line at the end: completed kernels. */
#include <pthread.h>
#include "plain.h"

enum { STREAMS = 8, THREADS = 4, CARDS = 2, FEW = 16, THREAD_LOCAL = 1 };

static struct { handle context, function, streams[STREAMS]; } cards[CARDS];
static uint64_t end;

static void open_card(int number, const char *us)
{
    cards[number].context = use_card(number);
    cards[number].function = kernel_of_us(us);
    for (int i = 0; i < STREAMS; i++)
        cards[number].streams[i] = new_stream();
}

static handle function(void) { return cards[0].function; }
static handle stream(int i) { return cards[0].streams[i]; }

static int streams_beside(void)
{
    for (int i = 0; i < FEW; i++)
        launch(function(), 1, stream(i % STREAMS));
    return FEW;
}

static int streams_that_fill_the_card(void)
{
    for (int i = 0; i < FEW; i++)
        launch(function(), WHOLE_CARD, stream(i % STREAMS));
    return FEW;
}

static int legacy_default_stream(void)
{
    for (int i = 0; i < FEW; i++)
        launch(function(), 1, NULL);
    return FEW;
}

static void *on_own_stream(void *completed)
{
    DO(cuCtxSetCurrent, cards[0].context);
    while (now() < end) {
        for (int i = 0; i < FEW; i++)
            DO(cuLaunchKernel_ptsz, function(), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        DO(cuStreamSynchronize_ptsz, NULL);
        *(int *)completed += FEW;
    }
    return NULL;
}

/* The main thread calls this once, and the threads launch until the end. */
static int default_streams_of_threads(void)
{
    pthread_t threads[THREADS];
    int completed[THREADS] = {0}, sum = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, on_own_stream, &completed[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += completed[i];
    }
    return sum;
}

static int cooperative(void)
{
    for (int i = 0; i < FEW; i++)
        DO(cuLaunchCooperativeKernel, function(), 1, 1, 1, 32, 1, 1, 0, stream(0), NULL);
    return FEW;
}

static int extended(void)
{
    CUlaunchConfig config = {{1, 1, 1}, {32, 1, 1}, 0, stream(0), NULL, 0};
    for (int i = 0; i < FEW; i++)
        DO(cuLaunchKernelEx, &config, function(), NULL, NULL);
    return FEW;
}

static int cooperative_on_two_cards(void)
{
    CUDA_LAUNCH_PARAMS list[CARDS];
    for (int card = 0; card < CARDS; card++)
        list[card] = (CUDA_LAUNCH_PARAMS){
            cards[card].function, {1, 1, 1}, {32, 1, 1}, 0, cards[card].streams[0], NULL};
    for (int i = 0; i < FEW; i++)
        DO(cuLaunchCooperativeKernelMultiDevice, list, CARDS, 0);
    return FEW * CARDS;
}

static int each_card_for_itself(void)
{
    for (int i = 0; i < FEW; i++)
        for (int card = 0; card < CARDS; card++) {
            DO(cuCtxSetCurrent, cards[card].context);
            launch(cards[card].function, 1, cards[card].streams[i % 2]);
        }
    return FEW * CARDS;
}

/* The first card's context stays current. */
static int streams_of_both_cards(void)
{
    for (int i = 0; i < FEW; i++)
        for (int card = 0; card < CARDS; card++)
            launch(cards[card].function, 1, cards[card].streams[i % 2]);
    return FEW * CARDS;
}

static int stream_of_another_context(void)
{
    static handle other, its_stream;
    if (!other) {
        DO(cuCtxCreate_v2, &other, 0, 0);
        its_stream = new_stream();
        DO(cuCtxSetCurrent, cards[0].context);
    }
    for (int i = 0; i < FEW; i++)
        launch(function(), 1, its_stream);
    DO(cuStreamSynchronize, its_stream);
    return FEW;
}

/* A graph of one chain, or of several parallel chains. */
static int graph(int branches)
{
    static handle executable;
    if (!executable) {
        handle captured, forked, joined;
        DO(cuEventCreate, &forked, CU_EVENT_DISABLE_TIMING);
        DO(cuEventCreate, &joined, CU_EVENT_DISABLE_TIMING);
        DO(cuStreamBeginCapture_v2, stream(0), THREAD_LOCAL);
        DO(cuEventRecord, forked, stream(0));
        for (int branch = 1; branch < branches; branch++)
            DO(cuStreamWaitEvent, stream(branch), forked, 0);
        for (int i = 0; i < FEW; i++)
            launch(function(), 1, stream(i % branches));
        for (int branch = 1; branch < branches; branch++) {
            DO(cuEventRecord, joined, stream(branch));
            DO(cuStreamWaitEvent, stream(0), joined, 0);
        }
        DO(cuStreamEndCapture, stream(0), &captured);
        DO(cuGraphInstantiateWithFlags, &executable, captured, 0);
    }
    DO(cuGraphLaunch, executable, stream(0));
    return FEW;
}

static int graph_of_a_chain(void) { return graph(1); }
static int graph_with_branches(void) { return graph(4); }

/* Graphs of 1, 4 and 16 kernels by turns, with a wait and a pause of a millisecond after each. */
static int graphs_of_changing_length(void)
{
    enum { LENGTHS = 3, PAUSE_US = 1000 };
    static handle executables[LENGTHS];
    static int turn;
    for (int i = 0, length = 1; i < LENGTHS && !executables[LENGTHS - 1]; i++, length *= 4) {
        handle captured;
        DO(cuStreamBeginCapture_v2, stream(0), THREAD_LOCAL);
        for (int launched = 0; launched < length; launched++)
            launch(function(), 1, stream(0));
        DO(cuStreamEndCapture, stream(0), &captured);
        DO(cuGraphInstantiateWithFlags, &executables[i], captured, 0);
    }
    int which = turn++ % LENGTHS;
    DO(cuGraphLaunch, executables[which], stream(0));
    DO(cuStreamSynchronize, stream(0));
    usleep(PAUSE_US);
    return 1 << 2 * which;
}

static const struct { const char *name; int (*few)(void); int cards; } ways[] = {
    {"streams", streams_beside, 1},
    {"filling", streams_that_fill_the_card, 1},
    {"legacy", legacy_default_stream, 1},
    {"threads", default_streams_of_threads, 1},
    {"cooperative", cooperative, 1},
    {"ex", extended, 1},
    {"multi", cooperative_on_two_cards, 2},
    {"cards", each_card_for_itself, 2},
    {"across", streams_of_both_cards, 2},
    {"elsewhere", stream_of_another_context, 1},
    {"graph", graph_of_a_chain, 1},
    {"branches", graph_with_branches, 1},
    {"lengths", graphs_of_changing_length, 1},
};

int main(int argc, char **argv)
{
    size_t way = 0, count = sizeof ways / sizeof *ways;
    while (argc == 4 && way < count && strcmp(argv[3], ways[way].name))
        way++;
    if (argc != 4 || way == count) {
        fprintf(stderr, "launches: SECONDS US WAY\n");
        return 2;
    }
    uint64_t completed = 0;
    open_driver();
    for (int card = ways[way].cards - 1; card >= 0; card--)
        open_card(card, argv[2]);
    uint64_t start = now();
    end = after(start, argv[1]);
    while (now() < end) {
        completed += (uint64_t)ways[way].few();
        for (int card = 0; card < ways[way].cards; card++) {
            DO(cuCtxSetCurrent, cards[card].context);
            DO(cuCtxSynchronize);
        }
        DO(cuCtxSetCurrent, cards[0].context);
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    fflush(stdout);
    /* The test reads the account before the process leaves it. */
    usleep(500000);
    return 0;
}
