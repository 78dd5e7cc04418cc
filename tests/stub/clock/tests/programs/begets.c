/* OUT NAME: a forked child and its parent sleep by turns, then the parent becomes another program. */
#include "world.h"

int main(int argc, char **argv)
{
    if (argc > 3) {
        note(argv, "is another program");
        pause_ns(1000);
        note(argv, "and sleeps");
        return 0;
    }
    pid_t child = fork();
    for (int i = 0; i < (child ? 3 : 2); i++) {
        pause_ns(child ? 1000 : 1500);
        note(argv, child ? "parent" : "child");
    }
    if (child)
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "again", NULL);
    return 0;
}
