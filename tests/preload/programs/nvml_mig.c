// build: -ldl
/* Walks through GPUs and their MIG slices, on an NVML that is opened by name. */
#include <dlfcn.h>
#include "nvml.h"

static void *library;
#define FIND(name) __typeof__(&name) real_##name = (__typeof__(&name))dlsym(library, #name)

int main(void)
{
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    FIND(nvmlDeviceGetCount_v2);
    FIND(nvmlDeviceGetHandleByIndex_v2);
    FIND(nvmlDeviceGetMigDeviceHandleByIndex);
    FIND(nvmlDeviceGetUUID);
    FIND(nvmlDeviceGetIndex);
    unsigned count = 0, number;
    char uuid[96];
    nvmlDevice_t gpu, slice;
    MUST(real_nvmlDeviceGetCount_v2(&count));
    for (unsigned index = 0; index < count; index++) {
        MUST(real_nvmlDeviceGetHandleByIndex_v2(index, &gpu));
        MUST(real_nvmlDeviceGetUUID(gpu, uuid, sizeof uuid));
        MUST(real_nvmlDeviceGetIndex(gpu, &number));
        SAY("%u %s", number, uuid);
        for (unsigned place = 0; place < 7; place++) {
            if (real_nvmlDeviceGetMigDeviceHandleByIndex(gpu, place, &slice) != 0)
                continue;
            MUST(real_nvmlDeviceGetUUID(slice, uuid, sizeof uuid));
            MUST(real_nvmlDeviceGetIndex(slice, &number));
            SAY("  %u %s", number, uuid);
        }
    }
    return 0;
}
