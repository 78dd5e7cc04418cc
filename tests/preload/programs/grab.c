// build: -lcuda
/* Allocates as much as it can, in mixed sizes of up to 128 MiB, and frees some when refused. argv[1] is
 * the number of rounds, argv[2] the seed. */
#include "trace.h"

#define HELD 64

static unsigned long long state;

static unsigned below(unsigned limit)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % limit;
}

int main(int argc, char **argv)
{
    long rounds = atol(argv[1]), granted = 0;
    CUdeviceptr allocations[HELD] = {0};
    state = strtoull(argv[argc - 1], NULL, 10);
    use_device(0);
    for (long round = 0; round < rounds; round++) {
        unsigned slot = below(HELD);
        if (allocations[slot]) {
            MUST(cuMemFree_v2(allocations[slot]));
            allocations[slot] = 0;
        }
        size_t asked = 1 + below((unsigned)(below(2) ? 128 * MiB : 64 * KiB));
        CUresult result = cuMemAlloc_v2(&allocations[slot], asked);
        if (result == CUDA_SUCCESS)
            granted++;
        else if (result == CUDA_ERROR_OUT_OF_MEMORY)
            allocations[slot] = 0;
        else
            MUST(result);
    }
    SAY("granted %ld", granted);
    return 0;
}
