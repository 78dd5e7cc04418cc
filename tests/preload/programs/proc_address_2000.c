// build: -lcuda
/* A program compiled for CUDA 2.0 gets the 32-bit forms, argv[1] MiB through one of them. */
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    __typeof__(cuMemAlloc) *alloc;
    __typeof__(cuMemFree) *give_back;
    __typeof__(cuMemGetInfo) *get_info;
    __typeof__(cuDeviceTotalMem) *total_mem;
    MUST(cuGetProcAddress("cuMemAlloc", (void **)&alloc, 2000, 0));
    MUST(cuGetProcAddress("cuMemFree", (void **)&give_back, 2000, 0));
    MUST(cuGetProcAddress("cuMemGetInfo", (void **)&get_info, 2000, 0));
    MUST(cuGetProcAddress("cuDeviceTotalMem", (void **)&total_mem, 2000, 0));
    unsigned first = (unsigned)UNTOUCHED, second = (unsigned)UNTOUCHED;
    unsigned free = (unsigned)UNTOUCHED, total = (unsigned)UNTOUCHED;
    use_device(0);
    TRACE(alloc(&first, 64 * MiB), "pointer=%d", first != (unsigned)UNTOUCHED);
    TRACE(alloc(&second, (unsigned)asked), "pointer=%d", second != (unsigned)UNTOUCHED);
    TRACE(get_info(&free, &total), "free=%s total=%s", bytes(free), bytes(total));
    TRACE(total_mem(&total, 0), "total=%s", bytes(total));
    TRACE(give_back(first));
    return 0;
}
