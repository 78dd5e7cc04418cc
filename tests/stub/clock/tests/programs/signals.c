/* OUT NAME [NS SIGNAL PID]...: sleeps so long and sends the signal, one after the other. */
#include "world.h"

int main(int argc, char **argv)
{
    for (int i = 3; i + 2 < argc; i += 3) {
        pause_ns(atoll(argv[i]));
        kill(atoi(argv[i + 2]), atoi(argv[i + 1]));
        note(argv, "sent %s", argv[i + 1]);
    }
    return 0;
}
