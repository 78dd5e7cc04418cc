/* OUT NAME NS HOW: ends after so long, while it runs: by exit, by _exit, by abort or by a kill. */
#include "world.h"

int main(int argc, char **argv)
{
    (void)argc;
    pause_ns(atoll(argv[3]));
    note(argv, argv[4]);
    if (!strcmp(argv[4], "_exit"))
        _exit(0);
    if (!strcmp(argv[4], "abort"))
        abort();
    if (!strcmp(argv[4], "kill"))
        kill(getpid(), SIGKILL);
    return 0;
}
