// build: -l:libnvidia-ml.so.1
/* Reads the process lists of the first card in all ways: their size, with too little room, with exactly
 * enough room. Bytes beyond the room must stay unchanged. */
#include <string.h>
#include "nvml.h"

enum { GUARD = 0xa5, MOST = 64 };

/* The lines of one list. `ask` is a call with `count` and `rows`. */
#define LIST(name, Row, ask)                                                                      \
    do {                                                                                          \
        static unsigned char space[MOST * sizeof(Row)];                                           \
        Row *rows = NULL;                                                                         \
        unsigned count = 0;                                                                       \
        int result = ask;                                                                         \
        unsigned needed = count;                                                                  \
        SAY(name " size -> %d count=%u", result, needed);                                         \
        memset(space, GUARD, sizeof space);                                                       \
        rows = (Row *)space;                                                                      \
        count = needed > 0 ? needed - 1 : 0;                                                      \
        result = ask;                                                                             \
        SAY(name " short -> %d count=%u touched=%d", result, count, touched(space, 0, sizeof space)); \
        count = needed;                                                                           \
        result = ask;                                                                             \
        SAY(name " exact -> %d count=%u guard=%d", result, count,                                 \
            touched(space, needed * sizeof(Row), sizeof space));                                  \
        for (unsigned i = 0; i < count; i++)                                                      \
            SAY(name " row pid=%u memory=%s", rows[i].pid, bytes(rows[i].memory));                \
        rows = NULL;                                                                              \
        count = MOST;                                                                             \
        result = ask;                                                                             \
        SAY(name " nowhere -> %d", result);                                                       \
    } while (0)

static int touched(const unsigned char *space, size_t from, size_t to)
{
    while (from < to && space[from] == GUARD)
        from++;
    return from < to;
}

int main(void)
{
    nvmlDevice_t device = NULL;
    unsigned none = 0;
    TRACE(nvmlDeviceGetComputeRunningProcesses_v3(device, &none, NULL));
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    TRACE(nvmlDeviceGetComputeRunningProcesses_v3(NULL, &none, NULL));
    TRACE(nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, NULL));
    LIST("compute", ProcessV1, nvmlDeviceGetComputeRunningProcesses(device, &count, rows));
    LIST("compute_v2", ProcessV2, nvmlDeviceGetComputeRunningProcesses_v2(device, &count, rows));
    LIST("compute_v3", ProcessV2, nvmlDeviceGetComputeRunningProcesses_v3(device, &count, rows));
    LIST("graphics", ProcessV1, nvmlDeviceGetGraphicsRunningProcesses(device, &count, rows));
    LIST("graphics_v3", ProcessV2, nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, rows));
    return 0;
}
