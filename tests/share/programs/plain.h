/* What the programs of this folder share: the clock, and kernels whose names say how long they last. */
#pragma once
#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "driver.h"

/* A grid of so many blocks fills the stub's A100. */
enum { WHOLE_CARD = 108 };

static inline uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static inline uint64_t after(uint64_t start, const char *seconds)
{
    return start + (uint64_t)(atof(seconds) * 1e9);
}

static inline void open_driver(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    DO(cuInit, 0);
}

/* The primary context of a card, current. */
static inline handle use_card(int number)
{
    handle context;
    int device;
    DO(cuDeviceGet, &device, number);
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    return context;
}

/* A kernel of the current context, by its name: work_500us lasts 500 us. */
static inline handle kernel(const char *name)
{
    handle module, function;
    char ptx[256];
    snprintf(ptx, sizeof ptx, ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry %s()\n{\n    ret;\n}\n",
             name);
    DO(cuModuleLoadData, &module, ptx);
    DO(cuModuleGetFunction, &function, module, name);
    return function;
}

static inline handle kernel_of_us(const char *us)
{
    char name[64];
    snprintf(name, sizeof name, "work_%sus", us);
    return kernel(name);
}

static inline handle new_stream(void)
{
    handle stream;
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

static inline void launch(handle function, unsigned blocks, handle stream)
{
    DO(cuLaunchKernel, function, blocks, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}
