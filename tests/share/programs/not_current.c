// build: -ldl
/* not_current SECONDS US: launches kernels of US microseconds in a stream of one context, while
 * another context is current. Two rounds of 16 kernels are in flight.
 *
 * One JSON line at the end: completed kernels. */
#include "plain.h"

enum { AHEAD = 16 };

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "not_current: SECONDS US\n");
        return 2;
    }
    handle other, marks[2];
    open_driver();
    DO(cuCtxCreate_v2, &other, 0, 0);
    handle function = kernel_of_us(argv[2]), stream = new_stream();
    for (int i = 0; i < 2; i++)
        DO(cuEventCreate, &marks[i], CU_EVENT_DISABLE_TIMING);
    use_card(0);
    uint64_t start = now(), end = after(start, argv[1]), completed = 0;
    for (unsigned round = 0; now() < end; round++) {
        for (int i = 0; i < AHEAD; i++)
            launch(function, 1, stream);
        DO(cuCtxPushCurrent_v2, other);
        DO(cuEventRecord, marks[round % 2], stream);
        DO(cuCtxPopCurrent_v2, &other);
        if (round) {
            DO(cuEventSynchronize, marks[1 - round % 2]);
            completed += AHEAD;
        }
    }
    DO(cuStreamSynchronize, stream);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    return 0;
}
