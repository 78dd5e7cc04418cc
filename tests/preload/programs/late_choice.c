// build: -lcuda -l:libnvidia-ml.so.1
/* Reads the cards through NVML, then changes the directory and sets CUDA_VISIBLE_DEVICES to argv[1], and
 * only then starts CUDA. */
#include <unistd.h>
#include "nvml.h"

int main(int argc, char **argv)
{
    size_t free = 0, total = 0;
    nvmlDevice_t card;
    nvmlMemory_t memory;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(argv[argc - 1]), &card));
    MUST(nvmlDeviceGetMemoryInfo(card, &memory));
    if (chdir("/") != 0)
        return 1;
    setenv("CUDA_VISIBLE_DEVICES", argv[argc - 1], 1);
    use_device(0);
    MUST(cuMemGetInfo_v2(&free, &total));
    SAY("driver=%zu nvml=%llu", total, memory.total);
    return 0;
}
