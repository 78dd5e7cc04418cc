// build: -ldl -pthread -Wl,-z,now
/* The process's first driver calls, on a thread whose stack has argv[1] bytes: argv[2] and so on name them.
 * They allocate 512 MiB. The thread also looks the functions up; only main loads the drivers.
 * Thread-locals, which are on a thread's stack, take 4 KiB, as in a program with many libraries. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include "nvml.h"

enum { MOST = 8 };

static struct {
    char call;
    int result;
    unsigned long long value;
} done[MOST];
static int count;
static __thread volatile char thread_local[4096];

#define CU(name) ((__typeof__(&name))dlsym(dlopen("libcuda.so.1", RTLD_LAZY), #name))
#define ML(name) ((__typeof__(&name))dlsym(dlopen("libnvidia-ml.so.1", RTLD_LAZY), #name))

static void *thread(void *unused)
{
    thread_local[0] = 1;
    for (int i = 0; i < count; i++) {
        CUdeviceptr pointer;
        size_t free = 0, all = 0;
        nvmlDevice_t device = NULL;
        nvmlMemory_t memory = {0};
        ProcessV2 rows[4];
        unsigned rest = 4;
        switch (done[i].call) {
        case 'i': /* init */
            done[i].result = CU(cuInit)(0);
            break;
        case 'a': /* alloc */
            done[i].result = CU(cuMemAlloc_v2)(&pointer, 512 * MiB);
            break;
        case 'm': /* memory */
            done[i].result = CU(cuMemGetInfo_v2)(&free, &all);
            done[i].value = free;
            break;
        case 'l': /* launch */
            done[i].result = CU(cuLaunchKernel)((CUfunction)done, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
            break;
        case 'n': /* nvml */
            done[i].result = ML(nvmlInit_v2)() | ML(nvmlDeviceGetHandleByIndex_v2)(0, &device) |
                             ML(nvmlDeviceGetMemoryInfo)(device, &memory);
            done[i].value = memory.total;
            break;
        case 'p': /* processes */
            done[i].result = ML(nvmlInit_v2)() | ML(nvmlDeviceGetHandleByIndex_v2)(0, &device) |
                             ML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &rest, rows);
            break;
        }
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_attr_t attributes;
    pthread_t id;
    for (int i = 2; i < argc && count < MOST; i++)
        done[count++].call = argv[i][0];
    if (!dlopen("libcuda.so.1", RTLD_NOW) || !dlopen("libnvidia-ml.so.1", RTLD_NOW))
        return 1;
    pthread_attr_init(&attributes);
    must(pthread_attr_setstacksize(&attributes, strtoul(argv[1], NULL, 10)), "a stack of this size");
    must(pthread_create(&id, &attributes, thread, NULL), "a thread");
    pthread_join(id, NULL);
    for (int i = 0; i < count; i++)
        SAY("%s -> %d %llu", argv[2 + i], done[i].result, done[i].value >> 20);
    return 0;
}
