// build:
/* later SECONDS PROGRAM [ARGUMENT]...: runs the program after this many seconds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? atof(argv[1]) : 0;
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
    if (argc > 2)
        execvp(argv[2], argv + 2);
    perror("later");
    return 127;
}
