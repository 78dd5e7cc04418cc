// build:
/* Uses no driver. Says "waiting" and ends with its input. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    puts("waiting");
    fflush(stdout);
    while (read(STDIN_FILENO, &(char){0}, 1) > 0)
        ;
    return 0;
}
