// build: -ldl
/* once US END: one kernel of so many microseconds, and then the end of the process.
 *
 * exit: waits for the kernel and exits at once; running: exits after 50 ms, while it runs; late: a handler that was
 * registered after the first launch ends the context before ours comes; handler: launches three more, and waits for each, in
 * a handler that runs when the thread's own storage is gone.
 *
 * One JSON line at the end. */
#include <string.h>
#include <unistd.h>
#include "driver.h"

static int device;

static handle function;

static void three_more(void)
{
    for (int i = 0; i < 3; i++) {
        DO(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        DO(cuCtxSynchronize);
    }
}

static void release(void)
{
    DO(cuDevicePrimaryCtxRelease_v2, device);
}

int main(int argc, char **argv)
{
    static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                              ".visible .entry spin_%sus()\n{\n    ret;\n}\n";
    char text[sizeof ptx + 16], name[64];
    handle context, module;
    if (argc != 3) {
        fprintf(stderr, "once: give US END\n");
        return 2;
    }
    snprintf(text, sizeof text, ptx, argv[1]);
    snprintf(name, sizeof name, "spin_%sus", argv[1]);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "once: %s\n", dlerror());
        return 1;
    }
    DO(cuInit, 0);
    DO(cuDeviceGet, &device, 0);
    DO(cuDevicePrimaryCtxRetain, &context, device);
    DO(cuCtxSetCurrent, context);
    DO(cuModuleLoadData, &module, text);
    DO(cuModuleGetFunction, &function, module, name);
    if (strcmp(argv[2], "handler") == 0)
        atexit(three_more);
    DO(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    if (strcmp(argv[2], "running") == 0)
        usleep(50000);
    else
        DO(cuCtxSynchronize);
    if (strcmp(argv[2], "late") == 0)
        atexit(release);
    printf("{\"launched\": 1}\n");
    return 0;
}
