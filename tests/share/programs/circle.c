// build: -ldl
/* circle ROUNDS STREAMS US: in each round, launches one kernel on each stream, and waits for all
 * of them. Each kernel waits until all others run, and then takes US microseconds.
 *
 * One JSON line at the end: elapsed_ns, and completed rounds. */
#include "plain.h"

enum { MOST = 1024 };

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[2]) : 0;
    if (count < 1 || count > MOST) {
        fprintf(stderr, "circle: ROUNDS STREAMS US, 1 to %d streams\n", MOST);
        return 2;
    }
    static handle streams[MOST];
    char name[64];
    snprintf(name, sizeof name, "circle_%sus_meets%d_streams", argv[3], count);
    open_driver();
    use_card(0);
    handle function = kernel(name);
    for (int i = 0; i < count; i++)
        streams[i] = new_stream();
    uint64_t start = now();
    int rounds = atoi(argv[1]);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++)
            launch(function, 1, streams[i]);
        DO(cuCtxSynchronize);
    }
    printf("{\"start_ns\": %" PRIu64 ", \"elapsed_ns\": %" PRIu64 ", \"completed\": %d}\n", start, now() - start,
           rounds);
    return 0;
}
