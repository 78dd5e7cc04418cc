// build: -lcuda
/* Initialises CUDA, or creates a context too (argv[1]: "init" or "context"), and holds no memory until
 * standard input ends. */
#include <string.h>
#include <unistd.h>
#include "trace.h"

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "context") == 0)
        use_device(0);
    else
        MUST(cuInit(0));
    SAY("idle");
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
    return 0;
}
