// build: -l:libnvidia-ml.so.1
/* Prints every card's memory as NVML returns it, in both forms. */
#include "nvml.h"

int main(void)
{
    unsigned count = 0;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetCount_v2(&count));
    for (unsigned index = 0; index < count; index++) {
        nvmlDevice_t device;
        nvmlMemory_t memory = {UNTOUCHED, UNTOUCHED, UNTOUCHED};
        nvmlMemory_v2_t memory_v2 = {nvmlMemory_v2, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
        MUST(nvmlDeviceGetHandleByIndex_v2(index, &device));
        TRACE(nvmlDeviceGetMemoryInfo(device, &memory), "device=%u total=%s free=%s used=%s", index,
              bytes(memory.total), bytes(memory.free), bytes(memory.used));
        TRACE(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2),
              "device=%u total=%s reserved=%s free=%s used=%s", index, bytes(memory_v2.total),
              bytes(memory_v2.reserved), bytes(memory_v2.free), bytes(memory_v2.used));
    }
    TRACE(nvmlShutdown());
    return 0;
}
