// build: -ldl
/* beside SECONDS LONG_US SHORT_US PAUSE_US: launches kernels of LONG_US on one stream, one after
 * the other. On another stream it launches kernels of SHORT_US, and waits and pauses after each. */
#include "plain.h"

static handle named(const char *format, const char *us)
{
    char name[64];
    snprintf(name, sizeof name, format, us);
    return kernel(name);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "beside: SECONDS LONG_US SHORT_US PAUSE_US\n");
        return 2;
    }
    open_driver();
    use_card(0);
    handle done, long_kernel = named("long_%sus", argv[2]), short_kernel = named("short_%sus", argv[3]);
    handle streams[] = {new_stream(), new_stream()};
    DO(cuEventCreate, &done, 0);
    uint64_t end = after(now(), argv[1]);
    struct timespec pause = {0, atol(argv[4]) * 1000};
    int runs = 0;
    while (now() < end) {
        if (!runs) {
            launch(long_kernel, 1, streams[0]);
            DO(cuEventRecord, done, streams[0]);
            runs = 1;
        }
        launch(short_kernel, 1, streams[1]);
        DO(cuStreamSynchronize, streams[1]);
        nanosleep(&pause, NULL);
        int result = CALL(cuEventQuery, done);
        if (result != CUDA_ERROR_NOT_READY) {
            must(result, "cuEventQuery");
            runs = 0;
        }
    }
    DO(cuCtxSynchronize);
    return 0;
}
