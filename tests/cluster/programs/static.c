// build: -static
/* A program that no library can limit: it is static, and calls the stub's driver as a static program
 * can call NVIDIA's kernel module, without libcuda. It allocates all that it gets of the first card,
 * prints "holding" with the MiB, and waits until it is asked to end, or with "once" ends.
 *
 * The messages are those of tests/stub/engine/src/wire.rs. */
#include <assert.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ATTACH = 1, CHARGE = 2 };

struct request {
    uint32_t operation, card, kind, unused;
    uint64_t amount, rooms[2], now;
};

struct reply {
    uint32_t status, length;
    uint64_t values[4];
};

static int driver;

static void end(int unused)
{
    (void)unused;
    _exit(128 + SIGTERM);
}

static void receive(void *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t read_now = read(driver, (char *)bytes + done, length - done);
        assert(read_now > 0);
        done += read_now;
    }
}

static void attach(void)
{
    const char *group = getenv("STUB_GPU_GROUP"), *path = getenv("STUB_GPU_SOCKET");
    struct request request = {.operation = ATTACH, .amount = group ? strlen(group) : 0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct reply reply;
    assert(path && strlen(path) < sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    driver = socket(AF_UNIX, SOCK_STREAM, 0);
    assert(connect(driver, (struct sockaddr *)&address, sizeof(address)) == 0);
    assert(write(driver, &request, sizeof(request)) == sizeof(request));
    if (request.amount)
        assert(write(driver, group, request.amount) == (ssize_t)request.amount);
    receive(&reply, sizeof(reply));
    char cards[reply.length];
    receive(cards, reply.length);
    /* The byte that comes with a file. */
    receive(cards, 1);
}

static int allocate(uint64_t bytes)
{
    struct request request = {.operation = CHARGE, .amount = bytes};
    struct reply reply;
    assert(write(driver, &request, sizeof(request)) == sizeof(request));
    receive(&reply, sizeof(reply));
    return reply.status == 0;
}

int main(int argc, char **argv)
{
    uint64_t held = 0;
    /* As the first process of a container it has no default action. */
    signal(SIGTERM, end);
    attach();
    for (uint64_t size = 1 << 30; size >= 1 << 20;) {
        if (allocate(size))
            held += size;
        else
            size /= 2;
    }
    printf("holding %llu\n", (unsigned long long)held >> 20);
    fflush(stdout);
    while (argc < 2 || strcmp(argv[1], "once"))
        pause();
    return 0;
}
