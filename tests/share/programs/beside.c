// build: -ldl
/* beside SECONDS LONG_US SHORT_US PAUSE_US: kernels of LONG_US one after the other on one stream, and
 * beside them short ones on another, with a wait and a pause after each. */
#include <stdint.h>
#include <time.h>
#include "driver.h"

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
    static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                              ".visible .entry long_%sus()\n{\n    ret;\n}\n"
                              ".visible .entry short_%sus()\n{\n    ret;\n}\n";
    enum { NON_BLOCKING = 1 };
    char text[sizeof ptx + 64], long_name[64], short_name[64];
    handle context, module, streams[2], long_kernel, short_kernel, done;
    int device;
    if (argc != 5) {
        fprintf(stderr, "beside: give SECONDS LONG_US SHORT_US PAUSE_US\n");
        return 2;
    }
    snprintf(text, sizeof text, ptx, argv[2], argv[3]);
    snprintf(long_name, sizeof long_name, "long_%sus", argv[2]);
    snprintf(short_name, sizeof short_name, "short_%sus", argv[3]);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "beside: %s\n", dlerror());
        return 1;
    }
    DO(cuInit, 0);
    DO(cuDeviceGet, &device, 0);
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    DO(cuModuleLoadData, &module, text);
    DO(cuModuleGetFunction, &long_kernel, module, long_name);
    DO(cuModuleGetFunction, &short_kernel, module, short_name);
    DO(cuEventCreate, &done, 0);
    for (int i = 0; i < 2; i++)
        DO(cuStreamCreate, &streams[i], NON_BLOCKING);
    uint64_t end = now() + (uint64_t)(atof(argv[1]) * 1e9);
    struct timespec pause = {0, atol(argv[4]) * 1000};
    int runs = 0;
    while (now() < end) {
        if (!runs) {
            DO(cuLaunchKernel, long_kernel, 1, 1, 1, 32, 1, 1, 0, streams[0], NULL, NULL);
            DO(cuEventRecord, done, streams[0]);
            runs = 1;
        }
        DO(cuLaunchKernel, short_kernel, 1, 1, 1, 32, 1, 1, 0, streams[1], NULL, NULL);
        DO(cuStreamSynchronize, streams[1]);
        nanosleep(&pause, NULL);
        int result = CALL(cuEventQuery, done);
        if (result != NOT_READY) {
            must(result, "cuEventQuery");
            runs = 0;
        }
    }
    DO(cuCtxSynchronize);
    return 0;
}
