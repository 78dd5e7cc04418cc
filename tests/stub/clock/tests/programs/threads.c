/* OUT NAME: mutex, condition, semaphore, join and a thread that ends by pthread_exit. */
#include "world.h"

static char **arguments;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int ready;

static void *holder(void *unused)
{
    pthread_mutex_lock(&mutex);
    pause_ns(1000000);
    note(arguments, "holder lets go");
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void *waiter(void *unused)
{
    pthread_mutex_lock(&mutex);
    note(arguments, "waiter has the mutex");
    while (!ready)
        pthread_cond_wait(&condition, &mutex);
    note(arguments, "waiter saw the condition");
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec += 5;
    int answer = pthread_cond_timedwait(&condition, &mutex, &soon);
    note(arguments, "after seconds: %d", answer);
    pthread_mutex_unlock(&mutex);
    sem_wait(&semaphore);
    note(arguments, "waiter got the semaphore");
    pthread_exit(unused);
}

int main(int argc, char **argv)
{
    (void)argc;
    arguments = argv;
    sem_init(&semaphore, 0, 0);
    pthread_t first, second;
    pthread_create(&first, NULL, holder, NULL);
    pthread_create(&second, NULL, waiter, NULL);
    pause_ns(2000000);
    pthread_mutex_lock(&mutex);
    ready = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    pthread_join(first, NULL);
    note(argv, "joined the holder");
    sleep(60);
    sem_post(&semaphore);
    pthread_join(second, NULL);
    note(argv, "joined the waiter");
    return 0;
}
