// build: -lcuda
/* Holds argv[1] MiB until a line of standard input says how it leaves:
 *   exec    its number runs a program that does not use the card
 *   again   its number runs a program that uses the card
 *   zombie  it exits, and its parent does not wait for it
 *   fork    it exits, and a child keeps the driver's files open until standard input ends */
#include <string.h>
#include <unistd.h>
#include "trace.h"

static void wait_for_the_end(void)
{
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
}

int main(int argc, char **argv)
{
    char how[16] = "";
    CUdeviceptr allocation = UNTOUCHED;
    if (argc > 2) {
        use_device(0);
        SAY("again");
        wait_for_the_end();
        return 0;
    }
    /* The parent only waits for the end of the input. */
    int ready[2];
    if (pipe(ready) != 0)
        return 1;
    if (fork() != 0) {
        close(ready[1]);
        while (read(ready[0], how, 1) > 0)
            ;
        SAY("left");
        wait_for_the_end();
        return 0;
    }
    close(ready[0]);
    use_device(0);
    MUST(cuMemAlloc_v2(&allocation, mebibytes(argv[1])));
    SAY("holding");
    for (size_t read_so_far = 0; read(STDIN_FILENO, how + read_so_far, 1) == 1; read_so_far++)
        if (how[read_so_far] == '\n')
            break;
    how[strcspn(how, "\n")] = 0;
    close(ready[1]);
    if (strcmp(how, "exec") == 0)
        execlp("cat", "cat", NULL);
    if (strcmp(how, "again") == 0)
        execl("/proc/self/exe", argv[0], argv[1], "again", NULL);
    if (strcmp(how, "fork") == 0 && fork() == 0)
        wait_for_the_end();
    _exit(0);
}
