// build: -lcuda
/* A process that forks before it touches CUDA; parent and child each hold argv[1] MiB at once. */
#include <sys/wait.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    size_t asked = mebibytes(argv[argc - 1]);
    CUdeviceptr allocation = UNTOUCHED;
    int child_holds[2], parent_done[2];
    if (pipe(child_holds) || pipe(parent_done))
        return 1;
    if (fork() == 0) {
        close(parent_done[1]);
        use_device(0);
        TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
        close(child_holds[1]);
        _exit(read(parent_done[0], &(char){0}, 1) != 0);
    }
    close(child_holds[1]);
    if (read(child_holds[0], &(char){0}, 1) != 0)
        return 1;
    use_device(0);
    TRACE(cuMemAlloc_v2(&allocation, asked), "granted=%d", allocation != UNTOUCHED);
    close(parent_done[1]);
    int status = -1;
    wait(&status);
    SAY("child ended with %d", status);
    return 0;
}
