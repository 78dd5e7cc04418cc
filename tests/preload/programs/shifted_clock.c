// build: -shared -fPIC
/* A preloaded library that shifts the C library's clocks by a day, as libfaketime does. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long result = syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += 86400;
    return (int)result;
}
