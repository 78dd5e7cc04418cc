// build: -shared -fPIC -Wl,-soname,libnvidia-ml.so.1
/* An NVML with two GPUs of two MIG slices each. As with the real one, the GPUs are counted and the slices
 * are found through their GPU, with a gap before the second slice. It is also an old NVML, with few
 * functions. */
#include <string.h>
#include "nvml.h"

static const char *const names[] = {"GPU-0", "GPU-1", "MIG-00", "MIG-01", "MIG-10", "MIG-11"};
static char handles[6];

static nvmlDevice_t handle_of(unsigned which)
{
    return (nvmlDevice_t)(void *)&handles[which];
}

static unsigned which(nvmlDevice_t device)
{
    return (unsigned)((char *)(void *)device - handles);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return 0;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return 0;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    *device = handle_of(index);
    return index < 2 ? 0 : 2;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    *index = which(device) < 2 ? which(device) : (which(device) % 2) * 2;
    return 0;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    strncpy(uuid, names[which(device)], length);
    return 0;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    *count = 7;
    return which(device) < 2 ? 0 : 3;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *answer)
{
    *answer = which(device) >= 2;
    return 0;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, unsigned index,
                                                 nvmlDevice_t *device)
{
    if (index != 0 && index != 2)
        return 6;
    *device = handle_of(2 + 2 * which(gpu) + index / 2);
    return 0;
}
