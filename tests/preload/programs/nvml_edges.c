// build: -l:libnvidia-ml.so.1
/* Invalid uses of NVML's memory functions: before nvmlInit, NULL, an unknown version, after shutdown. */
#include "nvml.h"

int main(void)
{
    nvmlDevice_t device = NULL;
    nvmlMemory_t memory = {UNTOUCHED, UNTOUCHED, UNTOUCHED};
    nvmlMemory_v2_t memory_v2 = {nvmlMemory_v2, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
    TRACE(nvmlDeviceGetMemoryInfo(device, &memory), "total=%s", bytes(memory.total));
    MUST(nvmlInit_v2());
    TRACE(nvmlDeviceGetMemoryInfo(NULL, &memory), "total=%s", bytes(memory.total));
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    TRACE(nvmlDeviceGetMemoryInfo(device, NULL));
    TRACE(nvmlDeviceGetMemoryInfo_v2(device, NULL));
    TRACE(nvmlDeviceGetMemoryInfo_v2(NULL, &memory_v2), "total=%s", bytes(memory_v2.total));
    memory_v2.version = 0;
    TRACE(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2), "total=%s", bytes(memory_v2.total));
    memory_v2.version = 77;
    TRACE(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2), "total=%s", bytes(memory_v2.total));
    TRACE(nvmlShutdown());
    TRACE(nvmlDeviceGetMemoryInfo(device, &memory), "total=%s", bytes(memory.total));
    return 0;
}
