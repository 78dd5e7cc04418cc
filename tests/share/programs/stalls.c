// build: -ldl
/* stalls SECONDS US QUEUED_MS STALL_MS: repeatedly launches QUEUED_MS of kernels of US
 * microseconds, and sleeps for STALL_MS, like a training loop with a data loader. It never waits
 * for the card.
 *
 * One JSON line at the end: launched kernels. */
#include "plain.h"

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "stalls: SECONDS US QUEUED_MS STALL_MS\n");
        return 2;
    }
    open_driver();
    use_card(0);
    handle function = kernel_of_us(argv[2]), stream = new_stream();
    int kernels = atoi(argv[3]) * 1000 / atoi(argv[2]);
    uint64_t start = now(), end = after(start, argv[1]), launched = 0;
    while (now() < end) {
        for (int i = 0; i < kernels && now() < end; i++, launched++)
            launch(function, 1, stream);
        usleep((unsigned)atoi(argv[4]) * 1000);
    }
    printf("{\"start_ns\": %" PRIu64 ", \"launched\": %" PRIu64 "}\n", start, launched);
    return 0;
}
