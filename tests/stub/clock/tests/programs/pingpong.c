/* OUT NAME FILE SIDE COUNT: two processes pass a word of a shared file to and fro. */
#include "world.h"

int main(int argc, char **argv)
{
    (void)argc;
    int file = open(argv[3], O_RDWR | O_CREAT, 0600);
    uint32_t side = atoi(argv[4]), count = atoi(argv[5]);
    if (ftruncate(file, 4096))
        return 1;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    volatile uint32_t *word = (uint32_t *)(page + 128);
    for (uint32_t round = 0; round < count; round++) {
        while (*word % 2 != side)
            syscall(SYS_futex, word, FUTEX_WAIT, *word, NULL, NULL, 0);
        pause_ns(1000);
        ++*word;
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    note(argv, "passed %u", *word);
    struct timespec short_time = {0, 5000};
    long answer = syscall(SYS_futex, word, FUTEX_WAIT, *word, &short_time, NULL, 0);
    note(argv, "woken: %ld", answer);
    return 0;
}
