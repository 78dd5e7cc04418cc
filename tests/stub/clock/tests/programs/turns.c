/* OUT NAME COUNT NS: sleeps so long, so many times. */
#include "world.h"

int main(int argc, char **argv)
{
    for (long i = 0; argc > 4 && i < atol(argv[3]); i++) {
        pause_ns(atoll(argv[4]));
        note(argv, "woke");
    }
    return 0;
}
