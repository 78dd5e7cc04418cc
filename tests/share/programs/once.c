// build: -ldl
/* once US END: launches one kernel of US microseconds, and then ends the process by one of:
 *
 * exit     waits for the kernel and exits at once
 * running  exits after 50 ms, while the kernel runs
 * late     an exit handler that was registered after the first launch ends the context before the
 *          library's own handler runs
 * handler  launches three more kernels and waits for each, in a handler that runs when the thread's
 *          own storage is already destroyed
 *
 * One JSON line at the end. */
#include "plain.h"

static handle function;

static void three_more(void)
{
    for (int i = 0; i < 3; i++) {
        launch(function, 1, NULL);
        DO(cuCtxSynchronize);
    }
}

static void release(void)
{
    DO(cuDevicePrimaryCtxRelease_v2, 0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "once: US END\n");
        return 2;
    }
    open_driver();
    use_card(0);
    function = kernel_of_us(argv[1]);
    if (strcmp(argv[2], "handler") == 0)
        atexit(three_more);
    launch(function, 1, NULL);
    if (strcmp(argv[2], "running") == 0)
        usleep(50000);
    else
        DO(cuCtxSynchronize);
    if (strcmp(argv[2], "late") == 0)
        atexit(release);
    printf("{\"launched\": 1}\n");
    return 0;
}
