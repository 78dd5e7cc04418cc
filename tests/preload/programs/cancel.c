// build: -lcuda -pthread
/* Cancels a thread that waits in the driver. */
#include <pthread.h>
#include <stdio.h>

int cuInit(unsigned flags);
int cuStreamSynchronize(void *stream);

static void *wait_in_driver(void *unused)
{
    cuStreamSynchronize(NULL);
    return unused;
}

int main(void)
{
    pthread_t thread;
    void *result;
    cuInit(0);
    pthread_create(&thread, NULL, wait_in_driver, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    return 0;
}
