// build: -lcuda
/* Starts CUDA after a filter, as a sandbox has it, denies system calls by EPERM. Each argument is the number
 * of a call, or NUMBER@VALUE to deny it with this third argument only. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include "trace.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        unsigned number = 0, value = 0;
        int only = sscanf(argv[i], "%u@%u", &number, &value) == 2;
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, only),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
            return 1;
    }
    TRACE(cuInit(0));
    CUcontext context = NULL;
    CUdeviceptr first = UNTOUCHED;
    TRACE(cuDevicePrimaryCtxRetain(&context, 0));
    TRACE(cuCtxSetCurrent(context));
    TRACE(cuMemAlloc_v2(&first, MiB), "pointer=%s", POINTER(first));
    return 0;
}
