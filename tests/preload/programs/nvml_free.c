// build: -l:libnvidia-ml.so.1
/* Prints the first card's free and used memory in MiB, as NVML returns it. */
#include "nvml.h"

int main(void)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    MUST(nvmlDeviceGetMemoryInfo(device, &memory));
    SAY("%llu %llu", memory.free >> 20, memory.used >> 20);
    return 0;
}
