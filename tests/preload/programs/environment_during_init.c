// build: -lcuda -lpthread
/* While the main thread is in cuInit, another thread reads lines. It makes the changes to the environment
 * that a line names, and starts a child. Then the program prints its own environment, and a child its own. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "nvml.h"

CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device);
extern char **environ;

static void child(const char *when)
{
    printf("child %s\n", when);
    fflush(stdout);
    if (system("env") != 0)
        exit(2);
}

static void *change(void *unused)
{
    char line[64], value[32];
    (void)unused;
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < 1000; i++) {
            snprintf(value, sizeof value, "%d", i);
            if (strstr(line, "add"))
                setenv("NEW", value, 1);
            if (strstr(line, "overwrite"))
                setenv("OLD", value, 1);
            if (strstr(line, "remove"))
                unsetenv("GONE");
            if (strstr(line, "hide"))
                unsetenv("CUDA_VISIBLE_DEVICES");
            if (strstr(line, "choose"))
                setenv("CUDA_VISIBLE_DEVICES", "0", 1);
        }
        child("during");
        puts("changed");
        fflush(stdout);
    }
    return NULL;
}

int main(void)
{
    pthread_t other;
    unsigned char uuid[16];
    int count = 0;
    if (pthread_create(&other, NULL, change, NULL) != 0)
        return 2;
    printf("init %d\n", cuInit(0));
    cuDeviceGetCount(&count);
    printf("cards");
    for (int device = 0; device < count; device++) {
        MUST(cuDeviceGetUuid_v2(uuid, device));
        printf(" ");
        for (int i = 0; i < 16; i++)
            printf("%02x", uuid[i]);
    }
    printf("\n");
    fflush(stdout);
    pthread_join(other, NULL);
    puts("program after");
    for (char **entry = environ; *entry; entry++)
        puts(*entry);
    child("after");
    return 0;
}
