// build: -ldl
/* carrier SECONDS US BYTES: repeatedly launches a graph. The graph copies BYTES to the card, runs
 * two kernels of US microseconds in parallel, and copies the bytes back. The bytes differ each
 * time.
 *
 * One JSON line at the end: completed graphs, and the number of graphs that returned wrong bytes. */
#include "plain.h"

enum { THREAD_LOCAL = 1 };

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "carrier: SECONDS US BYTES\n");
        return 2;
    }
    size_t bytes = strtoull(argv[3], NULL, 10);
    handle graph, executable, forked, joined;
    unsigned char *sent, *back;
    CUdeviceptr there;
    open_driver();
    use_card(0);
    handle function = kernel_of_us(argv[2]), stream = new_stream(), beside = new_stream();
    DO(cuMemAlloc_v2, &there, bytes);
    DO(cuMemHostAlloc, (void **)&sent, bytes, 0);
    DO(cuMemHostAlloc, (void **)&back, bytes, 0);
    DO(cuEventCreate, &forked, CU_EVENT_DISABLE_TIMING);
    DO(cuEventCreate, &joined, CU_EVENT_DISABLE_TIMING);
    DO(cuStreamBeginCapture_v2, stream, THREAD_LOCAL);
    DO(cuMemcpyHtoDAsync_v2, there, sent, bytes, stream);
    DO(cuEventRecord, forked, stream);
    DO(cuStreamWaitEvent, beside, forked, 0);
    launch(function, 1, beside);
    launch(function, 1, stream);
    DO(cuEventRecord, joined, beside);
    DO(cuStreamWaitEvent, stream, joined, 0);
    DO(cuMemcpyDtoHAsync_v2, back, there, bytes, stream);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphInstantiateWithFlags, &executable, graph, 0);
    uint64_t start = now(), end = after(start, argv[1]), completed = 0, wrong = 0;
    while (now() < end) {
        memset(sent, (int)(1 + completed % 255), bytes);
        memset(back, 0, bytes);
        DO(cuGraphLaunch, executable, stream);
        DO(cuStreamSynchronize, stream);
        wrong += memcmp(sent, back, bytes) != 0;
        completed++;
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 ", \"wrong\": %" PRIu64 "}\n", start,
           completed, wrong);
    return 0;
}
