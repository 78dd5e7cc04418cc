// build: -ldl
/* collective SECONDS US DEVICE...: launches on all of these cards a kernel of so many microseconds that
 * waits for its partner on another card, waits for all of them, again and again. Launches are one
 * round ahead, as those of training loops are.
 *
 * One JSON line at the end: completed rounds. */
#include <inttypes.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "driver.h"

enum { DEVICES = 2 };

typedef struct { handle context, stream, function; } card;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void open_card(card *c, int number, const char *us)
{
    static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                              ".visible .entry reduce_%sus_meets2()\n{\n    ret;\n}\n";
    char text[sizeof ptx + 16], name[64];
    int device;
    snprintf(text, sizeof text, ptx, us);
    snprintf(name, sizeof name, "reduce_%sus_meets2", us);
    handle module;
    DO(cuDeviceGet, &device, number);
    DO(cuDevicePrimaryCtxRetain, &c->context, device);
    DO(cuCtxSetCurrent, c->context);
    DO(cuModuleLoadData, &module, text);
    DO(cuModuleGetFunction, &c->function, module, name);
    DO(cuStreamCreate, &c->stream, 1);
}

int main(int argc, char **argv)
{
    card cards[DEVICES];
    int count = argc - 3;
    if (count < 1 || count > DEVICES) {
        fprintf(stderr, "collective: name one or two devices\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "collective: %s\n", dlerror());
        return 1;
    }
    DO(cuInit, 0);
    for (int i = 0; i < count; i++)
        open_card(&cards[i], atoi(argv[3 + i]), argv[2]);
    uint64_t start = now(), end = start + (uint64_t)(atof(argv[1]) * 1e9), rounds = 0;
    while (now() < end) {
        for (int i = 0; i < count; i++) {
            DO(cuCtxSetCurrent, cards[i].context);
            DO(cuLaunchKernel, cards[i].function, 1, 1, 1, 32, 1, 1, 0, cards[i].stream, NULL, NULL);
        }
        for (int i = 0; rounds % 2 && i < count; i++) {
            DO(cuCtxSetCurrent, cards[i].context);
            DO(cuStreamSynchronize, cards[i].stream);
        }
        rounds++;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, rounds);
    fflush(stdout);
    /* The partner may have launched less often: what waits for it must not hold up our end. */
    _exit(0);
}
