// build: -lcuda -ldl -pthread
/* Launches what each line of standard input, or of the first argument, says, and answers with "LINE
 * -> RESULT OUT-VALUES", like script.c. launches.h has the launch functions, scene.h what there is
 * around them; here is who makes the calls.
 *
 * Before a command: `on a` makes worker thread a do it, `start a` does not wait for its end, which
 * `finish a` answers; `thread` makes it in a new thread that ends with it, `fork` in a child, `vfork`
 * in a new program that a child of vfork becomes, `at_exit` when this one ends. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "scene.h"

#define WORDS 24

static int run(char **a);

static struct worker {
    pthread_t thread;
    sem_t given, done;
    char *words[WORDS];
    char line[256], said[256];
    CUcontext context;
    int result, exists;
} workers[SLOTS];

/* A thread begins with the context of the one that it comes from. */
static void make(struct worker *worker, void *(*body)(void *))
{
    MUST(cuCtxGetCurrent(&worker->context));
    pthread_create(&worker->thread, NULL, body, worker);
}

static void *work(void *pointer)
{
    struct worker *me = pointer;
    MUST(cuCtxSetCurrent(me->context));
    for (;;) {
        while (sem_wait(&me->given))
            ;
        me->result = run(me->words);
        strcpy(me->said, said);
        sem_post(&me->done);
    }
    return NULL;
}

static void start(struct worker *worker, char **a)
{
    if (!worker->exists) {
        sem_init(&worker->given, 0, 0);
        sem_init(&worker->done, 0, 0);
        make(worker, work);
        worker->exists = 1;
    }
    char *end = worker->line;
    memset(worker->words, 0, sizeof worker->words);
    for (int i = 0; a[i]; i++) {
        worker->words[i] = strcpy(end, a[i]);
        end += strlen(a[i]) + 1;
    }
    sem_post(&worker->given);
}

static int finish(struct worker *worker)
{
    while (sem_wait(&worker->done))
        ;
    strcpy(said, worker->said);
    return worker->result;
}

static void *on_new_thread(void *pointer)
{
    struct worker *me = pointer;
    MUST(cuCtxSetCurrent(me->context));
    me->result = run(me->words);
    strcpy(me->said, said);
    return NULL;
}

static int in_thread(char **a)
{
    struct worker once = {0};
    memcpy(once.words, a, WORDS * sizeof *a);
    make(&once, on_new_thread);
    pthread_join(once.thread, NULL);
    strcpy(said, once.said);
    return once.result;
}

/* The same command in so many threads at once; the last answer that is no success. */
static int in_threads(int count, char **a)
{
    struct worker *all = calloc((size_t)count, sizeof *all);
    int result = 0;
    for (int i = 0; i < count; i++) {
        memcpy(all[i].words, a, WORDS * sizeof *a);
        make(&all[i], on_new_thread);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(all[i].thread, NULL);
        result = all[i].result ? all[i].result : result;
    }
    free(all);
    return result;
}

static int in_child(char **a)
{
    int status = -1, pipes[2];
    struct { int result; char said[sizeof said]; } answer = {0};
    if (pipe(pipes))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        answer.result = run(a);
        strcpy(answer.said, said);
        _exit(write(pipes[1], &answer, sizeof answer) != sizeof answer);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], &answer, sizeof answer);
    close(pipes[0]);
    waitpid(child, &status, 0);
    strcpy(said, answer.said);
    OUT("child=%d", got == sizeof answer ? status : -1);
    return answer.result;
}

/* What a new program does is the rest of the line, with semicolons for ends of lines. */
static int in_program(char **a)
{
    char script[256] = "";
    int status = -1;
    for (; *a; a++)
        strcat(strcat(script, *a), " ");
    char *const arguments[] = {"launcher", script, NULL};
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

static volatile sig_atomic_t signals;
static sigset_t counted;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static char last_line[256];
static char *last_words[WORDS];

static void at_exit(void)
{
    printf("at exit -> %d\n", run(last_words));
    fflush(stdout);
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void split(char *line, char **words)
{
    char *rest = NULL;
    memset(words, 0, WORDS * sizeof *words);
    for (int i = 0; i < WORDS - 1 && (words[i] = strtok_r(i ? NULL : line, " ", &rest)); i++)
        ;
}

static int run(char **a)
{
    said[0] = '\0';
    if (IS("on")) {
        start(&SLOT(workers, a[1]), a + 2);
        return finish(&SLOT(workers, a[1]));
    }
    if (IS("start")) {
        start(&SLOT(workers, a[1]), a + 2);
        return 0;
    }
    if (IS("finish"))
        return finish(&SLOT(workers, a[1]));
    if (IS("cancel"))
        return pthread_cancel(SLOT(workers, a[1]).thread);
    if (IS("cancelled")) { /* a cancellation is pending when the command begins */
        pthread_cancel(pthread_self());
        return run(a + 1);
    }
    if (IS("join")) {
        void *result = NULL;
        int joined = pthread_join(SLOT(workers, a[1]).thread, &result);
        OUT("%s", result == PTHREAD_CANCELED ? "cancelled" : "ended");
        return joined;
    }
    if (IS("any")) /* whatever the answer is */
        return run(a + 1) * 0;
    if (IS("thread"))
        return in_thread(a + 1);
    if (IS("threads"))
        return in_threads(atoi(a[1]), a + 2);
    if (IS("fork"))
        return in_child(a + 1);
    if (IS("vfork"))
        return in_program(a + 1);
    if (IS("at_exit")) {
        char *end = last_line;
        for (int i = 1; a[i]; i++)
            end = stpcpy(last_words[i - 1] = end, a[i]) + 1;
        return atexit(at_exit);
    }
    if (IS("count_signals")) { /* those that come to this thread */
        pthread_sigmask(SIG_UNBLOCK, &counted, NULL);
        return sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_signal}, NULL);
    }
    if (IS("signals"))
        return signals;
    if (IS("count_threads"))
        return threads();
    return scene(a);
}

static void answer(char *line)
{
    char *words[WORDS];
    printf("%s", line);
    split(line, words);
    if (words[0]) {
        int result = run(words);
        printf(" -> %d%s\n", result, said);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[256], *rest = NULL;
    sigaddset(&counted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &counted, NULL);
    streams['L'] = (CUstream)1; /* CU_STREAM_LEGACY */
    streams['P'] = (CUstream)2; /* CU_STREAM_PER_THREAD */
    for (char *next = argc > 1 ? strtok_r(argv[1], ";", &rest) : NULL; next;
         next = strtok_r(NULL, ";", &rest))
        answer(strcpy(line, next));
    while (argc == 1 && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    return 0;
}
