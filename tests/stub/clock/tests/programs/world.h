/* What the programs of the clock's tests share: the time, and a file that all of them write to. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

static inline int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec - 1000000000000ll;
}

static inline void pause_ns(int64_t ns)
{
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

/* Appends "TIME NAME what happened" to the file of the first two arguments. */
static inline void note(char **argv, const char *format, ...)
{
    char line[200];
    int used = snprintf(line, sizeof line, "%lld %s ", (long long)now(), argv[2]);
    va_list rest;
    va_start(rest, format);
    used += vsnprintf(line + used, sizeof line - used - 1, format, rest);
    va_end(rest);
    line[used++] = '\n';
    int out = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out < 0 || write(out, line, used) != used)
        abort();
    close(out);
}
