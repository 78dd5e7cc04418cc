// build: -lcuda
/* A container of a test. It prints when it started, in nanoseconds of CLOCK_REALTIME, and then does
 * one of these until it is asked to end:
 *
 *   tenant fill       takes all memory of its cards, and prints "holding"
 *   tenant once       the same, and ends: an init container
 *   tenant wait       does not use its cards
 *   tenant idle       has a context on each of its cards, and prints "holding"
 *   tenant compute    the same, and launches kernels of 1 ms on its first card */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "trace.h"

#define PTX ".version 7.0\n.target sm_50\n"

static void end(int unused)
{
    (void)unused;
    /* As a program does that has not finished its work. */
    _exit(128 + SIGTERM);
}

static void fill(void)
{
    CUdeviceptr allocation;
    for (size_t size = GiB; size >= MiB;) {
        int result = cuMemAlloc_v2(&allocation, size);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            size /= 2;
        else
            MUST(result);
    }
}

static void compute(void)
{
    CUmodule module;
    CUfunction kernel;
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&kernel, module, "work_1000us"));
    for (;;) {
        MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        MUST(cuCtxSynchronize());
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "fill";
    int count, takes_all = !strcmp(what, "fill") || !strcmp(what, "once");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    SAY("started %lld", now.tv_sec * 1000000000ll + now.tv_nsec);
    /* As the first process of a container it has no default action. */
    signal(SIGTERM, end);
    while (!strcmp(what, "wait"))
        pause();
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&count));
    for (int ordinal = count - 1; ordinal >= 0; ordinal--) {
        use_device(ordinal);
        if (takes_all)
            fill();
    }
    SAY("holding");
    if (!strcmp(what, "compute"))
        compute();
    while (strcmp(what, "once"))
        pause();
    return 0;
}
