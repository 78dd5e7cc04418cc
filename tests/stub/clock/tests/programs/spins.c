/* OUT NAME NS: reads the clock until so long has passed, and never waits. */
#include "world.h"

int main(int argc, char **argv)
{
    (void)argc;
    while (now() < atoll(argv[3])) {
    }
    note(argv, "reached");
    return 0;
}
