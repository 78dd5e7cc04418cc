// build: -ldl
/* successive SECONDS US END: runs short programs one after the other. Each launches one kernel of
 * US microseconds, waits for it, and ends by END: exit (as from main), _exit, or kill (SIGKILL).
 *
 * One JSON line at the end: start_ns, the number of programs that completed their kernel, and
 * their PIDs. */
#include <signal.h>
#include <sys/wait.h>
#include "plain.h"

enum { MOST = 4096, LOOK_NS = 200000 };

static void one_kernel(const char *us)
{
    open_driver();
    use_card(0);
    launch(kernel_of_us(us), 1, NULL);
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

/* Sleeps between two polls, so that other programs run meanwhile. */
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
        fprintf(stderr, "successive: SECONDS US END\n");
        return 2;
    }
    static pid_t pids[MOST];
    size_t count = 0;
    uint64_t start = now(), until = after(start, argv[1]);
    while (now() < until && count < MOST) {
        pid_t child = fork();
        if (child == 0) {
            one_kernel(argv[2]);
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
