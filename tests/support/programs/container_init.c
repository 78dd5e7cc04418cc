// build:
/* The last steps of a container runtime: changes the root, becomes the container's user, gives up the
 * rights that a container does not have, and executes its program.
 *
 *     container_init ROOT NAMESPACE UID FILTER PROGRAM ARGUMENT...
 *
 * ROOT is a mount point of this mount namespace, NAMESPACE the file of a user namespace, and FILTER a
 * file with a seccomp program; "-" is none. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MUST(call)                                                                     \
    do {                                                                               \
        if ((call) < 0) {                                                              \
            fprintf(stderr, "container_init: %s: %s\n", #call, strerror(errno));       \
            return 125;                                                                \
        }                                                                              \
    } while (0)

/* containerd's default (pkg/oci, defaultUnixCaps). */
static const int KEPT[] = {
    CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_FOWNER,           CAP_MKNOD,
    CAP_NET_RAW, CAP_SETGID,       CAP_SETUID,  CAP_SETFCAP,          CAP_SETPCAP,
    CAP_KILL,    CAP_SYS_CHROOT,   CAP_AUDIT_WRITE, CAP_NET_BIND_SERVICE,
};

static int is_kept(int capability)
{
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++)
        if (KEPT[i] == capability)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    static struct sock_filter filter[BPF_MAXINSNS];
    struct sock_fprog program = {.filter = filter};
    int namespace = -1;
    if (argc < 6)
        return 125;
    const char *root = argv[1], *namespace_path = argv[2], *filter_path = argv[4];
    int user = atoi(argv[3]);

    if (strcmp(namespace_path, "-"))
        MUST(namespace = open(namespace_path, O_RDONLY | O_CLOEXEC));
    if (strcmp(filter_path, "-")) {
        int file;
        ssize_t size;
        MUST(file = open(filter_path, O_RDONLY | O_CLOEXEC));
        MUST(size = read(file, filter, sizeof filter));
        program.len = size / sizeof *filter;
    }

    /* The old root is stacked below the new one, and removed. */
    MUST(chdir(root));
    MUST(syscall(SYS_pivot_root, ".", "."));
    MUST(umount2(".", MNT_DETACH));
    MUST(chdir("/"));

    if (namespace >= 0)
        MUST(setns(namespace, CLONE_NEWUSER));
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
        if (!is_kept(capability))
            MUST(prctl(PR_CAPBSET_DROP, capability));
    MUST(setgroups(0, NULL));
    MUST(setresgid(user, user, user));
    MUST(setresuid(user, user, user));
    if (program.len) {
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    }
    execvp(argv[5], argv + 5);
    fprintf(stderr, "container_init: %s: %s\n", argv[5], strerror(errno));
    return 127;
}
