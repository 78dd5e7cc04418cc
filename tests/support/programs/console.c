// build: -Wl,--no-as-needed -lcuda -ldl -pthread
/* A CUDA program that does what each line of standard input, or of the first argument, says, and
 * answers with "LINE -> RESULT OUT-VALUES". So a test reads as the calls that it is about, and looks
 * at the books between any two of them; and two runs can be compared line by line.
 *
 * Objects have names of a letter, or a letter and a number; `-` is NULL, the streams `L` and `P` are
 * those that every context has. Sizes take K, M or G. The files console_*.h have the commands that call
 * the driver; this file decides which thread or process makes the call:
 *
 *   on a …       worker thread a; `start a …` does not wait for its end, `finish a` answers it
 *   thread …     a new thread that ends with the command; `threads 8 …`: so many at once
 *   fork …       a child
 *   vfork …      a new program that a child of vfork becomes
 *   at_exit …    this program, when it exits
 *   cancelled …  this thread, while a cancellation is pending
 *
 * `hold_loader PATH` makes a thread wait in the constructor of a plugin, and so with the loader's lock.
 * `release_loader` ends that, with 1 if it had waited for 20 s. `use_descriptors` leaves the process none.
 *
 * `any` answers 0 whatever the result is, `time` adds how many nanoseconds the command took, `sleep`
 * waits so many milliseconds, `ptsz` calls the forms with per-thread default streams, `lookup dlsym`
 * sets how functions are found from now on. Without -lcuda that must come first: no function is linked then. */
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "console_arrays.h"
#include "console_driver.h"
#include "console_graphs.h"
#include "console_green.h"
#include "console_launches.h"
#include "console_memory.h"
#include "console_virtual.h"

static int run(char **a);

static struct worker {
    pthread_t thread;
    sem_t given, done;
    char *words[WORDS];
    char line[LINE], outputs[LINE];
    CUcontext context;
    int result, exists;
} workers[128];

static struct worker *worker(const char *name) { return &workers[(unsigned char)*name % 128u]; }

/* A thread begins with the context of the one that creates it. */
static int create(struct worker *worker, void *(*body)(void *))
{
    MUST(CALL(cuCtxGetCurrent, &worker->context));
    return pthread_create(&worker->thread, NULL, body, worker);
}

static int begin_on(struct worker *me)
{
    MUST(CALL(cuCtxSetCurrent, me->context));
    return 0;
}

static void run_on(struct worker *me)
{
    me->result = run(me->words);
    strcpy(me->outputs, outputs);
}

static void *work(void *pointer)
{
    struct worker *me = pointer;
    begin_on(me);
    for (;;) {
        while (sem_wait(&me->given))
            ;
        run_on(me);
        sem_post(&me->done);
    }
    return NULL;
}

static void start(struct worker *worker, char **a)
{
    if (!worker->exists) {
        sem_init(&worker->given, 0, 0);
        sem_init(&worker->done, 0, 0);
        create(worker, work);
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
    strcpy(outputs, worker->outputs);
    return worker->result;
}

static void *work_once(void *pointer)
{
    begin_on(pointer);
    run_on(pointer);
    return NULL;
}

/* The same command in so many threads at once; the last result that is no success. */
static int in_threads(int count, char **a)
{
    struct worker *all = calloc((size_t)count, sizeof *all);
    int result = 0;
    for (int i = 0; i < count; i++) {
        memcpy(all[i].words, a, WORDS * sizeof *a);
        create(&all[i], work_once);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(all[i].thread, NULL);
        result = all[i].result ? all[i].result : result;
        strcpy(outputs, all[i].outputs);
    }
    free(all);
    return result;
}

static int in_child(char **a)
{
    int status = -1, pipes[2];
    struct { int result; char outputs[LINE]; } answer = {0};
    if (pipe(pipes))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        answer.result = run(a);
        strcpy(answer.outputs, outputs);
        _exit(write(pipes[1], &answer, sizeof answer) != sizeof answer);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], &answer, sizeof answer);
    close(pipes[0]);
    waitpid(child, &status, 0);
    strcpy(outputs, answer.outputs);
    OUT("child=%d", got == sizeof answer ? status : -1);
    return answer.result;
}

/* The new program does the rest of the line, with semicolons for ends of lines. */
static int in_program(char **a)
{
    char script[LINE] = "";
    int status = -1;
    for (; *a; a++)
        strcat(strcat(script, *a), " ");
    char *const arguments[] = {"console", script, NULL};
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

/* Every way out of a process that the kernel knows. */
static int leave(const char *how, char **command)
{
    printf(" -> 0\n");
    fflush(stdout);
    if (strcmp(how, "exec") == 0)
        execvp(command[0], command);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "crash") == 0)
        *(volatile int *)8 = 0;
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    exit(0);
}

static volatile sig_atomic_t signals;
static sigset_t counted;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static char last_line[LINE];
static char *last_words[WORDS];

static void at_exit(void)
{
    printf("at exit -> %d\n", run(last_words));
    fflush(stdout);
}

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static sem_t in_loader, leave_loader;
static pthread_t loader_thread;
static int gave_up;

static void wait_in_loader(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    sem_post(&in_loader);
    gave_up = sem_timedwait(&leave_loader, &end) != 0;
}

static void *load(void *path)
{
    return dlopen(path, RTLD_NOW);
}

static int hold_loader(const char *path)
{
    char address[32];
    snprintf(address, sizeof address, "%p", (void *)wait_in_loader);
    setenv("CONSTRUCTOR", address, 1);
    return pthread_create(&loader_thread, NULL, load, strdup(path)) || sem_wait(&in_loader);
}

static int release_loader(void)
{
    sem_post(&leave_loader);
    return pthread_join(loader_thread, NULL) || gave_up;
}

static int timed(char **a)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int result = run(a);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ANSWER(result, "ns=%lld",
           (end.tv_sec - start.tv_sec) * 1000000000ll + end.tv_nsec - start.tv_nsec);
}

static int per_thread(char **a)
{
    int before = lookup;
    lookup = PER_THREAD;
    int result = run(a);
    lookup = before;
    return result;
}

static int run(char **a)
{
    outputs[0] = '\0';
    if (IS("on")) {
        start(worker(a[1]), a + 2);
        return finish(worker(a[1]));
    }
    if (IS("start")) {
        start(worker(a[1]), a + 2);
        return 0;
    }
    if (IS("finish"))
        return finish(worker(a[1]));
    if (IS("cancel"))
        return pthread_cancel(worker(a[1])->thread);
    if (IS("cancelled")) {
        pthread_cancel(pthread_self());
        return run(a + 1);
    }
    if (IS("join")) {
        void *result = NULL;
        int joined = pthread_join(worker(a[1])->thread, &result);
        ANSWER(joined, "%s", result == PTHREAD_CANCELED ? "cancelled" : "ended");
    }
    if (IS("any"))
        return run(a + 1) * 0;
    if (IS("time"))
        return timed(a + 1);
    if (IS("sleep"))
        return usleep((useconds_t)atoi(a[1]) * 1000);
    if (IS("ptsz"))
        return per_thread(a + 1);
    if (IS("lookup"))
        return choose_lookup(a[1]);
    if (IS("thread"))
        return in_threads(1, a + 1);
    if (IS("threads"))
        return in_threads(atoi(a[1]), a + 2);
    if (IS("fork"))
        return in_child(a + 1);
    if (IS("vfork"))
        return in_program(a + 1);
    if (IS("leave"))
        return leave(a[1], a + 2);
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
        return count_threads();
    if (IS("hold_loader"))
        return hold_loader(a[1]);
    if (IS("release_loader"))
        return release_loader();
    if (IS("use_descriptors")) {
        while (dup(STDIN_FILENO) >= 0)
            ;
        return 0;
    }
    return virtual_memory(a);
}

static void answer(char *line)
{
    char *words[WORDS] = {NULL}, *rest = NULL;
    printf("%s", line);
    for (int i = 0; i < WORDS - 1 && (words[i] = strtok_r(i ? NULL : line, " ", &rest)); i++)
        ;
    if (words[0]) {
        int result = run(words);
        printf(" -> %d%s", result, outputs);
    }
    putchar('\n');
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[LINE], *rest = NULL;
    sigaddset(&counted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &counted, NULL);
    SLOT(streams, "L") = CU_STREAM_LEGACY;
    SLOT(streams, "P") = CU_STREAM_PER_THREAD;
    for (char *next = argc > 1 ? strtok_r(argv[1], ";", &rest) : NULL; next;
         next = strtok_r(NULL, ";", &rest))
        answer(strcpy(line, next));
    while (argc == 1 && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    return 0;
}
