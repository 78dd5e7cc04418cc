// build: -l:libnvidia-ml.so.1
/* Prints every card that NVML counts, and the cards that it finds by argv: uuid NAME, serial NAME, ... */
#include <string.h>
#include "nvml.h"

static nvmlReturn_t find(const char *kind, const char *name, nvmlDevice_t *device)
{
    if (strcmp(kind, "uuid") == 0)
        return nvmlDeviceGetHandleByUUID(name, device);
    if (strcmp(kind, "serial") == 0)
        return nvmlDeviceGetHandleBySerial(name, device);
    if (strcmp(kind, "pci") == 0)
        return nvmlDeviceGetHandleByPciBusId_v2(name, device);
    return nvmlDeviceGetHandleByPciBusId(name, device);
}

int main(int argc, char **argv)
{
    unsigned count = 77, old_count = 77, index;
    char uuid[96];
    nvmlDevice_t device, old_device;
    nvmlMemory_t memory;
    TRACE(nvmlDeviceGetCount_v2(&count), "count=%u", count);
    MUST(nvmlInit_v2());
    TRACE(nvmlDeviceGetCount_v2(NULL));
    TRACE(nvmlDeviceGetCount_v2(&count), "count=%u", count);
    TRACE(nvmlDeviceGetCount(&old_count), "count=%u", old_count);
    for (unsigned number = 0; number < count; number++) {
        MUST(nvmlDeviceGetHandleByIndex_v2(number, &device));
        MUST(nvmlDeviceGetHandleByIndex(number, &old_device));
        MUST(nvmlDeviceGetUUID(device, uuid, sizeof uuid));
        MUST(nvmlDeviceGetIndex(device, &index));
        SAY("card %u: index=%u uuid=%s same=%d", number, index, uuid, device == old_device);
    }
    device = (nvmlDevice_t)(uintptr_t)UNTOUCHED;
    TRACE(nvmlDeviceGetHandleByIndex_v2(count, &device), "%s", POINTER(device));
    TRACE(nvmlDeviceGetHandleByIndex(count, &device), "%s", POINTER(device));
    TRACE(nvmlDeviceGetHandleByIndex_v2(0, NULL));
    TRACE(nvmlDeviceGetHandleByUUID(NULL, &device), "%s", POINTER(device));
    TRACE(nvmlDeviceGetHandleByUUID("GPU-none", &device), "%s", POINTER(device));
    TRACE(nvmlDeviceGetIndex(NULL, &index));
    for (int i = 1; i + 1 < argc; i += 2) {
        device = (nvmlDevice_t)(uintptr_t)UNTOUCHED;
        nvmlReturn_t result = find(argv[i], argv[i + 1], &device);
        if (result == NVML_SUCCESS) {
            MUST(nvmlDeviceGetIndex(device, &index));
            MUST(nvmlDeviceGetMemoryInfo(device, &memory));
            SAY("%s -> 0 index=%u total=%s", argv[i], index, bytes(memory.total));
        } else {
            SAY("%s -> %d %s", argv[i], result, POINTER(device));
        }
    }
    return 0;
}
