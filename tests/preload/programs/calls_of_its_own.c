// build: -lcuda
/* Memory from `thin_driver`, whose functions call others of its own: argv[1] is the function, argv[2] the
 * bytes, a multiple of 512. Allocated, freed, and allocated again. */
#include <string.h>
#include "trace.h"

static CUdeviceptr first = UNTOUCHED, second = UNTOUCHED;
static size_t requested;

static CUresult pitched(CUdeviceptr *to)
{
    size_t pitch;
    return cuMemAllocPitch_v2(to, &pitch, 512, requested / 512, 4);
}

static CUresult managed(CUdeviceptr *to)
{
    return cuMemAllocManaged(to, requested, CU_MEM_ATTACH_GLOBAL);
}

static CUdeviceptr *to_call_back;
static CUresult called_back_result;

static void call_back(void)
{
    called_back_result = cuMemAlloc_v2(to_call_back, requested);
}

static CUresult called_back(CUdeviceptr *to)
{
    to_call_back = to;
    cuMemHostGetFlags(NULL, (void *)call_back);
    CUresult result = cuCtxSynchronize();
    return result ? result : called_back_result;
}

int main(int argc, char **argv)
{
    (void)argc;
    CUresult (*allocate)(CUdeviceptr *) = !strcmp(argv[1], "pitched")   ? pitched
                                          : !strcmp(argv[1], "managed") ? managed
                                                                        : called_back;
    int total = 0;
    size_t free_bytes = UNTOUCHED, total_bytes = UNTOUCHED;
    requested = strtoull(argv[2], NULL, 10);
    use_device(0);
    TRACE(cuDriverGetVersion(&total), "the driver's own %d MiB", total);
    TRACE(allocate(&first), "pointer=%s", pointer(first));
    TRACE(cuMemGetInfo_v2(&free_bytes, &total_bytes), "free=%s total=%s", bytes(free_bytes),
          bytes(total_bytes));
    if (first == UNTOUCHED)
        return 0;
    TRACE(cuMemFree_v2(first));
    TRACE(allocate(&second), "pointer=%s", pointer(second));
    return 0;
}
