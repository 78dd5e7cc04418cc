// build: -ldl
/* collective SECONDS US DEVICE...: repeatedly launches a kernel of US microseconds on each of
 * these cards, and waits for all of them. Each kernel waits for its partner on another card.
 * Launches are one round ahead, as in training loops.
 *
 * One JSON line at the end: completed rounds. */
#include "plain.h"

enum { DEVICES = 2 };

typedef struct { handle context, stream, function; } card;

static void open_card(card *c, int number, const char *us)
{
    char name[64];
    snprintf(name, sizeof name, "reduce_%sus_meets2", us);
    c->context = use_card(number);
    c->function = kernel(name);
    c->stream = new_stream();
}

int main(int argc, char **argv)
{
    card cards[DEVICES];
    int count = argc - 3;
    if (count < 1 || count > DEVICES) {
        fprintf(stderr, "collective: name one or two devices\n");
        return 2;
    }
    open_driver();
    for (int i = 0; i < count; i++)
        open_card(&cards[i], atoi(argv[3 + i]), argv[2]);
    uint64_t start = now(), end = after(start, argv[1]), rounds = 0;
    while (now() < end) {
        for (int i = 0; i < count; i++) {
            DO(cuCtxSetCurrent, cards[i].context);
            launch(cards[i].function, 1, cards[i].stream);
        }
        for (int i = 0; rounds % 2 && i < count; i++) {
            DO(cuCtxSetCurrent, cards[i].context);
            DO(cuStreamSynchronize, cards[i].stream);
        }
        rounds++;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, rounds);
    fflush(stdout);
    /* The partner may have launched less often; do not wait for it at the end. */
    _exit(0);
}
