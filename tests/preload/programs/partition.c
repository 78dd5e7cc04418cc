// build: -lcuda
/* Allocates mixed sizes and never holds more than argv[1] MiB. While the parts of all processes fit the
 * limit together, no request may be refused. argv[2] is the number of rounds, argv[3] the seed. */
#include "trace.h"

#define HELD 16

static unsigned long long state;

static unsigned below(unsigned limit)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % limit;
}

int main(int argc, char **argv)
{
    size_t part = mebibytes(argv[1]), held = 0;
    long rounds = atol(argv[2]);
    CUdeviceptr allocations[HELD] = {0};
    size_t sizes[HELD] = {0};
    state = strtoull(argv[argc - 1], NULL, 10);
    use_device(0);
    for (long round = 0; round < rounds; round++) {
        unsigned slot = below(HELD);
        if (sizes[slot]) {
            MUST(cuMemFree_v2(allocations[slot]));
            held -= sizes[slot];
            sizes[slot] = 0;
        }
        size_t asked = below(4) ? 1 + below(1 << 20) : part / 2;
        /* The account counts in units of 512 bytes, and the driver may take more than was requested. */
        asked = (asked + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
        if (held + asked > part)
            continue;
        CUresult result = cuMemAlloc_v2(&allocations[slot], asked);
        if (result != CUDA_SUCCESS) {
            SAY("FAILED round %ld: %zu bytes refused with %d, holding %zu of %zu", round, asked,
                result, held, part);
            return 1;
        }
        sizes[slot] = asked;
        held += asked;
    }
    SAY("none refused");
    return 0;
}
