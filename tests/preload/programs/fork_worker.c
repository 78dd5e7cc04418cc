// build: -lcuda
/* A child of a process that uses CUDA executes another program: argv[1] MiB in this process, and then as
 * much in the child while this process still holds its own. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[1]);
    CUdeviceptr allocation = UNTOUCHED;
    use_device(0);
    TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
    if (argc > 2)
        return 0;
    pid_t child = getenv("VFORK") ? vfork() : fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], argv[1], "child", NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    SAY("child ended with %d", status);
    return 0;
}
