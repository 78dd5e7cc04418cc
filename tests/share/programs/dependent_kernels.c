// build: -ldl
/* dependent_kernels SECONDS US PAUSE_US CARD CARD: repeatedly launches two kernels that wait for
 * each other, each on its own stream, on one card or two. The second is launched PAUSE_US after
 * the first. Then the program waits for both.
 *
 * One JSON line at the end: completed pairs. */
#include "plain.h"

typedef struct { handle context, stream, function; } rank;

static rank open_rank(const char *card, const char *name)
{
    rank opened;
    opened.context = use_card(atoi(card));
    opened.stream = new_stream();
    opened.function = kernel(name);
    return opened;
}

static void start(const rank *one)
{
    DO(cuCtxSetCurrent, one->context);
    launch(one->function, 1, one->stream);
}

static void wait_for(const rank *one)
{
    DO(cuCtxSetCurrent, one->context);
    DO(cuStreamSynchronize, one->stream);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "dependent_kernels: SECONDS US PAUSE_US CARD CARD\n");
        return 2;
    }
    char name[64];
    snprintf(name, sizeof name, "swap_%sus_meets2_streams", argv[2]);
    open_driver();
    rank first = open_rank(argv[4], name), second = open_rank(argv[5], name);
    uint64_t begin = now(), end = after(begin, argv[1]), pairs = 0;
    while (now() < end) {
        start(&first);
        usleep((unsigned)atoi(argv[3]));
        start(&second);
        wait_for(&first);
        wait_for(&second);
        pairs++;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", begin, pairs);
    return 0;
}
