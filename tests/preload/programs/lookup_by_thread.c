// build: -lcuda -pthread
/* Driver calls from a thread that is not the main one. */
#include <pthread.h>
#define FIND(symbol) symbol
#define main walk
#include "walk.h"
#undef main

static int count;
static char **arguments;

static void *thread(void *unused)
{
    (void)unused;
    walk(count, arguments);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t id;
    count = argc;
    arguments = argv;
    pthread_create(&id, NULL, thread, NULL);
    pthread_join(id, NULL);
    return 0;
}
