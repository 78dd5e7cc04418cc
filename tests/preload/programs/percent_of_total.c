// build: -lcuda
/* The start of a framework: reads the card's memory, and then allocates argv[1] percent of it at once.
 * It says "granted" or "refused" and ends without freeing. argv[2] is the number of programs that do the
 * same one after the other; argv[3] says how the next one starts: by "exec" or by "fork". */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "trace.h"

static void allocate(const char *percent)
{
    size_t free_bytes = 0, total = 0;
    CUdeviceptr allocation = UNTOUCHED;
    use_device(0);
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    CUresult result = cuMemAlloc_v2(&allocation, total / 100 * (size_t)atoi(percent));
    SAY("%s", result == CUDA_SUCCESS ? "granted" : "refused");
}

int main(int argc, char **argv)
{
    int more = argc > 2 ? atoi(argv[2]) - 1 : 0;
    int by_fork = argc > 3 && strcmp(argv[3], "fork") == 0;
    for (; by_fork && more > 0; more--) {
        pid_t child = fork();
        if (child == 0) {
            allocate(argv[1]);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    allocate(argv[1]);
    if (more > 0) {
        char left[16];
        snprintf(left, sizeof left, "%d", more);
        execl("/proc/self/exe", argv[0], argv[1], left, "exec", NULL);
        return 127;
    }
    return 0;
}
