// build: -ldl -lm
/* server SECONDS US KERNELS LOAD SEED: answers requests one after the other. Each takes KERNELS
 * kernels of US microseconds. Requests arrive at random, and on average take LOAD percent of the
 * card's time. With the same seed, the same requests arrive.
 *
 * One JSON line at the end: late_ns, the time of each request from its arrival to its answer. */
#include <math.h>
#include "plain.h"

enum { MOST = 1 << 16 };

/* From 0 to 1, both excluded; Knuth's MMIX generator. */
static uint64_t state;

static double random_part(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(state >> 12) + 0.5) / (double)(1ull << 52);
}

static void sleep_until(uint64_t instant)
{
    struct timespec until = {(time_t)(instant / 1000000000ull), (long)(instant % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "server: SECONDS US KERNELS LOAD SEED\n");
        return 2;
    }
    static uint64_t late[MOST];
    state = strtoull(argv[5], NULL, 10);
    open_driver();
    use_card(0);
    handle function = kernel_of_us(argv[2]), stream = new_stream();
    int kernels = atoi(argv[3]);
    double mean_ns = atof(argv[2]) * 1e3 * kernels * 100 / atof(argv[4]), arrival_ns = 0;
    uint64_t start = now(), end = after(start, argv[1]);
    size_t count = 0;
    while (count < MOST) {
        arrival_ns -= mean_ns * log(random_part());
        uint64_t arrival = start + (uint64_t)arrival_ns;
        if (arrival >= end)
            break;
        sleep_until(arrival);
        for (int i = 0; i < kernels; i++)
            launch(function, 1, stream);
        DO(cuStreamSynchronize, stream);
        late[count++] = now() - arrival;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"late_ns\": [", start);
    for (size_t i = 0; i < count; i++)
        printf("%s%" PRIu64, i ? ", " : "", late[i]);
    printf("]}\n");
    return 0;
}
