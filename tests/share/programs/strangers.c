// build: -ldl
/* strangers SECONDS: on one stream a kernel that is known, by turns with one that nobody has launched
 * before, and with the known one in a grid that is new for long. Launches are one round ahead.
 *
 * One JSON line at the end: completed rounds. */
#include <inttypes.h>
#include <stdint.h>
#include <time.h>
#include "driver.h"

static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                          ".visible .entry known_50us()\n{\n    ret;\n}\n"
                          ".visible .entry strange_170us()\n{\n    ret;\n}\n";

static handle stream;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/* A kernel of its own each time. */
static handle loaded(const char *name)
{
    handle module, function;
    DO(cuModuleLoadData, &module, ptx);
    DO(cuModuleGetFunction, &function, module, name);
    return function;
}

static void launch(handle function, unsigned blocks, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        DO(cuLaunchKernel, function, blocks, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

int main(int argc, char **argv)
{
    handle context, known;
    int device;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (argc < 2 || !driver) {
        fprintf(stderr, "strangers: %s\n", argc < 2 ? "say for how many seconds" : dlerror());
        return 2;
    }
    DO(cuInit, 0);
    DO(cuDeviceGet, &device, 0);
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    DO(cuStreamCreate, &stream, 1);
    known = loaded("known_50us");
    uint64_t start = now(), end = start + (uint64_t)(atof(argv[1]) * 1e9), rounds = 0;
    while (now() < end) {
        launch(known, 1, 20);
        launch(loaded("strange_170us"), 1, 1);
        launch(known, (unsigned)(rounds % 3000) + 2, 5);
        if (rounds++ % 2)
            DO(cuStreamSynchronize, stream);
    }
    DO(cuStreamSynchronize, stream);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, rounds);
    return 0;
}
