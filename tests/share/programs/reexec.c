// build: -ldl
/* reexec SECONDS US: launches a kernel of US microseconds, waits for it, and executes itself
 * again, until the time is over.
 *
 * One JSON line at the end. */
#include "plain.h"

int main(int argc, char **argv)
{
    char until[32];
    if (argc < 3) {
        fprintf(stderr, "reexec: SECONDS US\n");
        return 2;
    }
    double seconds = (double)now() / 1e9;
    snprintf(until, sizeof until, "%.6f", argc > 3 ? atof(argv[3]) : seconds + atof(argv[1]));
    if (seconds >= atof(until)) {
        printf("{\"ended\": true}\n");
        return 0;
    }
    open_driver();
    use_card(0);
    launch(kernel_of_us(argv[2]), 1, NULL);
    DO(cuCtxSynchronize);
    execl("/proc/self/exe", argv[0], argv[1], argv[2], until, NULL);
    perror("reexec");
    return 1;
}
