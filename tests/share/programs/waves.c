// build: -ldl
/* waves SECONDS US STREAMS BLOCKS: repeatedly launches a kernel of US microseconds and BLOCKS
 * blocks on each stream, and waits for all of them.
 *
 * One JSON line at the end: completed kernels. */
#include "plain.h"

enum { STREAMS = 32 };

int main(int argc, char **argv)
{
    int count = argc == 5 ? atoi(argv[3]) : 0;
    if (count < 1 || count > STREAMS) {
        fprintf(stderr, "waves: SECONDS US STREAMS BLOCKS, 1 to %d streams\n", STREAMS);
        return 2;
    }
    handle streams[STREAMS];
    uint64_t completed = 0;
    open_driver();
    use_card(0);
    handle function = kernel_of_us(argv[2]);
    for (int i = 0; i < count; i++)
        streams[i] = new_stream();
    uint64_t start = now(), end = after(start, argv[1]);
    while (now() < end) {
        for (int i = 0; i < count; i++)
            launch(function, (unsigned)atoi(argv[4]), streams[i]);
        DO(cuCtxSynchronize);
        completed += (uint64_t)count;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    return 0;
}
