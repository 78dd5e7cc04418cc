// build: -ldl
/* pipe SECONDS US STREAMS: a pipeline. Each item takes a kernel of US microseconds on each stream,
 * one after the other. Kernels of different items overlap. Twice as many items as streams are in
 * flight.
 *
 * One JSON line at the end: completed items. */
#include "plain.h"

enum { MOST = 32, KEPT = 2 * MOST + 1 };

int main(int argc, char **argv)
{
    unsigned count = argc == 4 ? (unsigned)atoi(argv[3]) : 0;
    if (count < 1 || count > MOST) {
        fprintf(stderr, "pipe: SECONDS US STREAMS, 1 to %d streams\n", MOST);
        return 2;
    }
    handle streams[MOST], passed[MOST], completed[KEPT];
    open_driver();
    use_card(0);
    handle function = kernel_of_us(argv[2]);
    for (unsigned i = 0; i < count; i++) {
        streams[i] = new_stream();
        DO(cuEventCreate, &passed[i], CU_EVENT_DISABLE_TIMING);
    }
    for (unsigned i = 0; i < KEPT; i++)
        DO(cuEventCreate, &completed[i], CU_EVENT_DISABLE_TIMING);
    uint64_t start = now(), end = after(start, argv[1]), items = 0;
    for (; now() < end; items++) {
        for (unsigned i = 0; i < count; i++) {
            if (i)
                DO(cuStreamWaitEvent, streams[i], passed[i - 1], 0);
            launch(function, 1, streams[i]);
            DO(cuEventRecord, passed[i], streams[i]);
        }
        DO(cuEventRecord, completed[items % KEPT], streams[count - 1]);
        if (items >= 2 * count)
            DO(cuEventSynchronize, completed[(items - 2 * count) % KEPT]);
    }
    DO(cuCtxSynchronize);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, items);
    return 0;
}
