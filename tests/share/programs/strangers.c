// build: -ldl
/* strangers SECONDS: repeatedly launches on one stream a known kernel, a kernel that was never
 * launched before, and the known kernel with a grid that was not used for long. Launches are one
 * round ahead.
 *
 * One JSON line at the end: completed rounds. */
#include "plain.h"

static handle stream;

static void launch_times(handle function, unsigned blocks, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        launch(function, blocks, stream);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "strangers: SECONDS\n");
        return 2;
    }
    open_driver();
    use_card(0);
    stream = new_stream();
    handle known = kernel("known_50us");
    uint64_t start = now(), end = after(start, argv[1]), rounds = 0;
    while (now() < end) {
        launch_times(known, 1, 20);
        launch_times(kernel("strange_170us"), 1, 1);
        launch_times(known, (unsigned)(rounds % 3000) + 2, 5);
        if (rounds++ % 2)
            DO(cuStreamSynchronize, stream);
    }
    DO(cuStreamSynchronize, stream);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, rounds);
    return 0;
}
