// build: -ldl
/* ends SECONDS US HOW: ends contexts, one after the other, while kernels of US microseconds run
 * and wait in them. HOW is destroy, reset or release; the last two end the primary context.
 *
 * One JSON line at the end: contexts ended, and kernels launched. */
#include "plain.h"

enum { STREAMS = 4, MOST = 40 };

typedef enum { DESTROY, RESET, RELEASE } how;

static handle begin(how end)
{
    handle context;
    if (end != DESTROY)
        return use_card(0);
    DO(cuCtxCreate_v2, &context, 0, 0);
    return context;
}

static void finish(how end, handle context)
{
    switch (end) {
    case DESTROY: DO(cuCtxDestroy_v2, context); break;
    case RESET: DO(cuDevicePrimaryCtxReset_v2, 0); break;
    case RELEASE: DO(cuDevicePrimaryCtxRelease_v2, 0); break;
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"destroy", "reset", "release"};
    int chosen = 0;
    while (argc == 4 && chosen < 3 && strcmp(argv[3], names[chosen]))
        chosen++;
    if (argc != 4 || chosen == 3) {
        fprintf(stderr, "ends: SECONDS US destroy|reset|release\n");
        return 2;
    }
    open_driver();
    uint64_t start = now(), end = after(start, argv[1]), ended = 0, launches = 0;
    while (now() < end) {
        handle streams[STREAMS], context = begin((how)chosen), function = kernel_of_us(argv[2]);
        for (int i = 0; i < STREAMS; i++)
            streams[i] = new_stream();
        /* Sometimes one batch is open, sometimes many are in flight. */
        uint64_t count = 1 + ended * 7 % MOST;
        for (uint64_t i = 0; i < count; i++)
            launch(function, 1 + (unsigned)(i % 2) * (WHOLE_CARD - 1), streams[i % STREAMS]);
        finish((how)chosen, context);
        launches += count;
        ended++;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"ended\": %" PRIu64 ", \"launches\": %" PRIu64 "}\n", start, ended,
           launches);
    return 0;
}
