// build: -ldl
/* exchange US KERNELS: in each round, launches KERNELS kernels of US microseconds, and waits for
 * the card. Each kernel waits for the same kernel of another process, as in a job with two ranks
 * on one card. It never ends. */
#include "plain.h"

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "exchange: US KERNELS\n");
        return 2;
    }
    char name[64];
    snprintf(name, sizeof name, "exchange_%sus_meets2", argv[1]);
    open_driver();
    use_card(0);
    handle function = kernel(name), stream = new_stream();
    for (;;) {
        for (int i = 0; i < atoi(argv[2]); i++)
            launch(function, 1, stream);
        DO(cuStreamSynchronize, stream);
    }
}
