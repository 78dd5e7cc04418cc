// build: -ldl
/* successive SECONDS US END: one short program after the other, each with one kernel of so many microseconds
 * for which it waits, and then its END: exit (as from main), _exit, or kill (SIGKILL).
 *
 * One JSON line at the end: start_ns, how many completed their kernel, and their pids. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "driver.h"
#include "spin.h"

enum { MOST = 4096, LOOK_NS = 200000 };

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void one_kernel(unsigned us)
{
    handle context, module, function;
    uint64_t rounds = 0;
    void *parameters[] = {&rounds};
    char name[32];
    int device;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "successive: %s\n", dlerror());
        exit(1);
    }
    DO(cuInit, 0);
    DO(cuDeviceGet, &device, 0);
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    DO(cuModuleLoadData, &module, spin_ptx(&us, 1));
    snprintf(name, sizeof name, "spin_%uus", us);
    DO(cuModuleGetFunction, &function, module, name);
    DO(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    DO(cuCtxSynchronize);
}

static void end(const char *how)
{
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    exit(0);
}

/* Asleep between two looks, so that others go on meanwhile. */
static int ended(pid_t child)
{
    int status = 0;
    struct timespec pause = {0, LOOK_NS};
    while (waitpid(child, &status, WNOHANG) == 0)
        nanosleep(&pause, NULL);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "successive: give SECONDS US END\n");
        return 2;
    }
    static pid_t pids[MOST];
    size_t count = 0;
    uint64_t start = now(), until = start + (uint64_t)(atof(argv[1]) * 1e9);
    while (now() < until && count < MOST) {
        pid_t child = fork();
        if (child == 0) {
            one_kernel((unsigned)atoi(argv[2]));
            end(argv[3]);
        }
        if (child < 0) {
            perror("successive: fork");
            return 1;
        }
        pids[count++] = child;
        int status = ended(child);
        if (WIFEXITED(status) && WEXITSTATUS(status)) {
            fprintf(stderr, "successive: a program failed\n");
            return 1;
        }
    }
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %zu, \"pids\": [", start, count);
    for (size_t i = 0; i < count; i++)
        printf("%s%d", i ? ", " : "", (int)pids[i]);
    printf("]}\n");
    return 0;
}
