// build: -ldl
/* Prints everything in a process that a library could change merely by being loaded. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "trace.h"

extern char **environ;

static void lines_of(const char *path, const char *wanted)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, wanted, strlen(wanted)) == 0)
            printf("%s: %s", path, line);
    fclose(file);
}

static void mapped_files(void)
{
    char line[4096];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *path = strchr(line, '/');
        printf("mapped: %s", path ? path : "anonymous\n");
    }
    fclose(file);
}

int main(void)
{
    lines_of("/proc/self/status", "Threads");
    lines_of("/proc/self/status", "SigBlk");
    lines_of("/proc/self/status", "SigIgn");
    lines_of("/proc/self/status", "SigCgt");
    lines_of("/proc/self/status", "Seccomp");
    lines_of("/proc/self/status", "NoNewPrivs");
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0)
            SAY("signal %d: handler %d flags %d", number, action.sa_handler != SIG_DFL,
                action.sa_flags);
    }
    mode_t mask = umask(0);
    umask(mask);
    SAY("umask %03o", mask);
    for (char **variable = environ; *variable; variable++)
        SAY("environment: %s", *variable);
    DIR *descriptors = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(descriptors));)
        SAY("descriptor: %s", entry->d_name);
    mapped_files();
    return 3;
}
