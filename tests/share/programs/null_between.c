// build: -ldl
/* null_between ROUNDS NAME PAUSE_US: in each round, launches a kernel of 20 us in the NULL stream,
 * and then the kernel NAME in each of two blocking streams, the second one PAUSE_US after the
 * first. It waits for the card after every second round.
 *
 * One JSON line at the end: elapsed_ns, and completed rounds. */
#include "plain.h"

enum { BLOCKING = 0 };

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "null_between: ROUNDS NAME PAUSE_US\n");
        return 2;
    }
    handle streams[2];
    open_driver();
    use_card(0);
    handle before = kernel("before_20us"), function = kernel(argv[2]);
    for (int i = 0; i < 2; i++)
        DO(cuStreamCreate, &streams[i], BLOCKING);
    unsigned pause_us = (unsigned)atoi(argv[3]);
    uint64_t start = now();
    int rounds = atoi(argv[1]);
    for (int round = 0; round < rounds; round++) {
        launch(before, 1, NULL);
        launch(function, 1, streams[0]);
        if (pause_us)
            usleep(pause_us);
        launch(function, 1, streams[1]);
        if (round % 2)
            DO(cuCtxSynchronize);
    }
    DO(cuCtxSynchronize);
    printf("{\"start_ns\": %" PRIu64 ", \"elapsed_ns\": %" PRIu64 ", \"completed\": %d}\n", start, now() - start,
           rounds);
    return 0;
}
