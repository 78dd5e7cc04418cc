// build: -rdynamic -fno-builtin -ldl
/* A program with its own versions of functions of the C library. Each looks up the next one when it is first
 * called, some of them before main, and does not work before it has that. So a dlsym that calls one of them
 * by its name never returns. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int calls;

static void *next(void **known, const char *name)
{
    static int depth;
    if (!*known) {
        if (depth++) {
            if (write(STDERR_FILENO, "called by dlsym\n", 16) > 0)
                _exit(99);
        }
        *known = dlsym(RTLD_NEXT, name);
        depth--;
    }
    calls++;
    return *known;
}

#define OWN(result, name, parameters, arguments)                        \
    result name parameters                                              \
    {                                                                   \
        static void *known;                                             \
        return ((result(*) parameters)next(&known, #name)) arguments;   \
    }

typedef int visitor(struct dl_phdr_info *, size_t, void *);

OWN(int, dl_iterate_phdr, (visitor * visit, void *data), (visit, data))
OWN(size_t, strlen, (const char *text), (text))
OWN(void *, memcpy, (void *to, const void *from, size_t size), (to, from, size))
OWN(void *, memmove, (void *to, const void *from, size_t size), (to, from, size))
OWN(void *, memset, (void *to, int byte, size_t size), (to, byte, size))
OWN(int, memcmp, (const void *one, const void *other, size_t size), (one, other, size))
OWN(int, bcmp, (const void *one, const void *other, size_t size), (one, other, size))
OWN(void *, malloc, (size_t size), (size))
OWN(void *, calloc, (size_t count, size_t size), (count, size))
OWN(void *, realloc, (void *old, size_t size), (old, size))
OWN(int, pthread_setcancelstate, (int state, int *before), (state, before))
OWN(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
OWN(int, pthread_key_create, (pthread_key_t * key, void (*end)(void *)), (key, end))

static int count(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)object, (void)size;
    ++*(int *)data;
    return 0;
}

__attribute__((constructor)) static void before_main(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_key_t key;
    int objects = 0, state;
    char text[8], *more = realloc(malloc(4), 8);
    dl_iterate_phdr(count, &objects);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&mutex);
    pthread_key_create(&key, NULL);
    memset(text, 0, sizeof text);
    memcpy(text, "four", 4);
    memmove(more, text, 8);
    printf("%d %zu %d %d %d\n", objects > 1, strlen(more), memcmp(more, text, 8), bcmp(more, text, 8),
           calloc(1, 1) != NULL);
}

int main(void)
{
    printf("%d\n", calls > 12);
    return 0;
}
