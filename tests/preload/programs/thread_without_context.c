// build: -lcuda -pthread
/* A thread without a current context, in a process whose main thread has one. */
#include <pthread.h>
#include "trace.h"

static CUdeviceptr allocation = UNTOUCHED;

static void *thread(void *unused)
{
    (void)unused;
    CUdeviceptr other = UNTOUCHED;
    size_t free = UNTOUCHED, total = UNTOUCHED;
    TRACE(cuMemAlloc_v2(&other, MiB), "pointer=%s", pointer(other));
    TRACE(cuMemGetInfo_v2(&free, &total), "free=%s total=%s", bytes(free), bytes(total));
    TRACE(cuDeviceTotalMem_v2(&total, 0), "total=%s", bytes(total));
    TRACE(cuMemFree_v2(allocation));
    return NULL;
}

int main(void)
{
    pthread_t id;
    use_device(0);
    TRACE(cuMemAlloc_v2(&allocation, MiB), "pointer=%s", pointer(allocation));
    pthread_create(&id, NULL, thread, NULL);
    pthread_join(id, NULL);
    TRACE(cuMemFree_v2(allocation));
    return 0;
}
