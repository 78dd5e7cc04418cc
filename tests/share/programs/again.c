// build:
/* again SECONDS PROGRAM [ARGUMENT]...: runs the program repeatedly for this many seconds.
 *
 * One JSON line at the end: the number of runs, and the seconds that they took. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    double start = now(), end = start + (argc > 2 ? atof(argv[1]) : 0);
    unsigned count = 0;
    for (; now() < end; count++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            execv(argv[2], argv + 2);
            _exit(127);
        }
        /* Poll, because a wait for a child stops the virtual clock. */
        struct timespec pause = {0, 1000000};
        while (waitpid(child, &status, WNOHANG) == 0)
            nanosleep(&pause, NULL);
        if (status)
            return 1;
    }
    printf("{\"count\": %u, \"seconds\": %.3f}\n", count, now() - start);
    return 0;
}
