// build: -lcuda -lpthread
/* A thread makes calls from two places by turns, whose addresses differ by a multiple of 32 KiB.
 * Meanwhile argv[1] children are forked, and each makes its first call. Says how many of them ended
 * by themselves. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "trace.h"

enum { APART = 32 << 10 };

#if defined(__x86_64__)
/* sub rsp, 8; mov rax, (an address); call rax; add rsp, 8; ret */
static unsigned char code[] = {0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0,
                               0, 0, 0, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3};
enum { ADDRESS = 6 };
#else
/* stp x29, x30, [sp, -16]!; ldr x9, (the address); blr x9; ldp x29, x30, [sp], 16; ret */
static unsigned char code[] = {0xfd, 0x7b, 0xbf, 0xa9, 0x89, 0, 0, 0x58, 0x20, 1, 0x3f, 0xd6, 0xfd, 0x7b,
                               0xc1, 0xa8, 0xc0, 3, 0x5f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0};
enum { ADDRESS = 20 };
#endif

typedef CUresult call(size_t *, size_t *);

static call *places[2];

static void *call_by_turns(void *unused)
{
    size_t free, total;
    for (;;) {
        places[0](&free, &total);
        places[1](&free, &total);
    }
    return unused;
}

int main(int argc, char **argv)
{
    int children = atoi(argv[argc - 1]), ended = 0;
    call *function = cuMemGetInfo_v2;
    char *room = mmap(NULL, 2 * APART, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code + ADDRESS, &function, sizeof function);
    for (int i = 0; i < 2; i++) {
        places[i] = (call *)memcpy(room + i * APART, code, sizeof code);
        __builtin___clear_cache(room + i * APART, room + i * APART + sizeof code);
    }
    use_device(0);
    pthread_t thread;
    pthread_create(&thread, NULL, call_by_turns, NULL);
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            cuInit(0);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status))
            break;
        ended++;
    }
    SAY("ended=%d", ended);
    fflush(stdout);
    _exit(0);
}
