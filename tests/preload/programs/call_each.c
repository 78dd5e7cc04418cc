// build: -ldl
/* Calls functions of $LIBRARY by name, each in its own child, in the state $STATE ("loaded",
 * "initialised" or "context"). Standard input has one call per line: a symbol and one letter per
 * argument, 0 for zero, 1 for one, b for a buffer. Prints the result, or the signal that ended the
 * child, and which buffers were written. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "nvml.h"

#define ARGUMENTS 16

typedef int function(long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                     long, long);

static void *library;

#define DRIVER(symbol) ((__typeof__(&symbol))dlsym(library, #symbol))

static void prepare(const char *state)
{
    if (!strcmp(state, "loaded"))
        return;
    if (dlsym(library, "nvmlInit_v2")) {
        MUST(DRIVER(nvmlInit_v2)());
        return;
    }
    MUST(DRIVER(cuInit)(0));
    if (!strcmp(state, "context")) {
        CUcontext context;
        MUST(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
        MUST(DRIVER(cuCtxSetCurrent)(context));
    }
}

static void call(const char *symbol, const char *pattern)
{
    static char untouched[8192], buffers[ARGUMENTS][8192];
    long arguments[ARGUMENTS] = {0};
    function *target = (function *)dlsym(library, symbol);
    if (!target) {
        SAY("missing");
        return;
    }
    for (int i = 0; pattern[i]; i++)
        arguments[i] = pattern[i] == 'b' ? (long)buffers[i] : pattern[i] - '0';
    const long *a = arguments;
    int result = target(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
                        a[12], a[13], a[14], a[15]);
    printf("%d", result);
    for (int i = 0; pattern[i]; i++)
        if (memcmp(buffers[i], untouched, sizeof untouched))
            printf(" argument %d written", i);
    SAY("%s", "");
}

int main(void)
{
    char line[256], symbol[128], pattern[ARGUMENTS + 1];
    library = dlopen(getenv("LIBRARY"), RTLD_NOW);
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        pattern[0] = '\0'; /* a function without parameters */
        sscanf(line, "%127s %16s", symbol, pattern);
        printf("%s(%s) -> ", symbol, pattern);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            prepare(getenv("STATE"));
            call(symbol, pattern);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status))
            SAY("%s", strsignal(WTERMSIG(status)));
    }
    return 0;
}
