// build: -ldl -pthread
/* liar SECONDS LIE US: repeatedly writes false reports into the account of its slice. Meanwhile it
 * launches kernels of US microseconds, one after the other; with 0 it launches one kernel only.
 * LIE is:
 *
 * waits   it reports that a launch waits for permission
 * runs    it reports work on the card
 * idle    it reports no work
 * wants   waits and runs by turns, for 5 ms each
 * all     waits, runs and idle by turns, for 20 ms each
 * unused  it reports that it has used no engine time
 *
 * One JSON line at the end: completed kernels. */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "plain.h"

/* Layouts of the account (native/account/src/lib.rs) and the grants page (native/limits/src/grants.rs). */
enum { VERSION = 1, SIZE = 364544, SLOTS = 256, WAKE = 448, RECORDS = 36864, RECORD = 256, COMPUTE = 102400 };
enum { WORDS = 64, TAKEN = 1, IDLE = 0, WAITING = 1, RUNNING = 2, USED = 8, FIRST_GRANT = 64, GRANTS_SIZE = 4096 };

enum { EACH_NS = 250000, SHORT_NS = 5000000, LONG_NS = 20000000 };

typedef enum { WAITS, RUNS, NO_WORK, WANTS, ALL, UNUSED, LIES } lie;

static const char *const lies[LIES] = {"waits", "runs", "idle", "wants", "all", "unused"};
static lie chosen;
static unsigned char *account;
static const unsigned char *grants;
static uint64_t end;

static void *map(const char *name, size_t size, int access)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("HAMI_SLICE"), name);
    int file = open(path, access & PROT_WRITE ? O_RDWR : O_RDONLY);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, size, access, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(file);
    return mapped;
}

static void store(size_t at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(account + at), value, __ATOMIC_SEQ_CST);
}

/* Writes a report about the first card for every process of the slice. */
static void tell(uint64_t state)
{
    uint64_t turn = *(volatile const uint32_t *)(grants + FIRST_GRANT);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        size_t words = COMPUTE + slot * WORDS;
        if (*(volatile uint32_t *)(account + RECORDS + slot * RECORD) != TAKEN)
            continue;
        if (chosen == UNUSED)
            store(words + USED, 0);
        else
            store(words, turn << 32 | state);
    }
    __atomic_add_fetch((uint32_t *)(account + WAKE), 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, account + WAKE, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* The state that it reports at an instant. */
static uint64_t claimed(uint64_t at)
{
    static const uint64_t states[] = {WAITING, RUNNING, IDLE};
    switch (chosen) {
    case WANTS: return states[at / SHORT_NS % 2];
    case ALL: return states[at / LONG_NS % 3];
    default: return states[chosen % 3];
    }
}

static void *run(void *unused)
{
    struct timespec pause = {0, EACH_NS};
    for (uint64_t at = now(); at < end; at = now()) {
        tell(claimed(at));
        nanosleep(&pause, NULL);
    }
    return unused;
}

int main(int argc, char **argv)
{
    while (argc == 4 && chosen < LIES && strcmp(argv[2], lies[chosen]))
        chosen++;
    if (argc != 4 || chosen == LIES) {
        fprintf(stderr, "liar: SECONDS waits|runs|idle|wants|all|unused US\n");
        return 2;
    }
    open_driver();
    use_card(0);
    handle function = kernel_of_us(atoi(argv[3]) ? argv[3] : "100"), stream = new_stream();
    account = map("account", SIZE, PROT_READ | PROT_WRITE);
    grants = map("grants", GRANTS_SIZE, PROT_READ);
    if (*(uint32_t *)(account + 8) != VERSION) {
        fprintf(stderr, "liar: the account has another layout; adapt the offsets\n");
        return 1;
    }
    uint64_t start = now(), completed = 0;
    end = after(start, argv[1]);
    launch(function, 1, stream);
    DO(cuStreamSynchronize, stream);
    pthread_t liar;
    pthread_create(&liar, NULL, run, NULL);
    while (atoi(argv[3]) && now() < end) {
        launch(function, 1, stream);
        launch(function, 1, stream);
        DO(cuStreamSynchronize, stream);
        completed += 2;
    }
    pthread_join(liar, NULL);
    printf("{\"start_ns\": %" PRIu64 ", \"completed\": %" PRIu64 "}\n", start, completed);
    return 0;
}
