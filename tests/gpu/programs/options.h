/* The command line of load.c. An invalid option ends the program with a message that has valid values. */
#pragma once
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 16 };

typedef enum { ASYNC, SYNC, GRAPH, STREAMS, MIXED, BURSTY, DECODE, SERVER, MEET, MEET_STREAMS, CALIBRATE } work;
typedef enum { KERNEL, EX, COOPERATIVE } launcher;
typedef enum { STREAM, CONTEXT } waiting;

static const char *const work_names[] = {"async", "sync", "graph", "streams",
                                         "mixed", "bursty", "decode", "server", "meet", "meet-streams",
                                         "calibrate", NULL};
static const char *const launcher_names[] = {"kernel", "ex", "cooperative", NULL};
static const char *const waiting_names[] = {"stream", "context", NULL};

typedef struct {
    work work;
    launcher launcher;
    waiting wait;
    unsigned kernel_us[LIST];
    size_t kernel_count;
    double seconds;
    int device;
    unsigned host_us, busy_percent, period_us, chain, queue_ms, tick_ms;
    uint64_t rounds_per_us; /* 0: kernels use the card's timer */
    uint64_t seed;
    int steps, print_ptx;
} options;

static void refuse(const char *name, const char *value, const char *fix)
{
    fprintf(stderr, "load: --%s %s: %s\n", name, value, fix);
    exit(2);
}

static int choose(const char *name, const char *value, const char *const *among)
{
    char fix[256] = "choose";
    for (int i = 0; among[i]; i++) {
        if (strcmp(value, among[i]) == 0)
            return i;
        size_t used = strlen(fix);
        snprintf(fix + used, sizeof fix - used, "%s %s", i ? "," : "", among[i]);
    }
    refuse(name, value, fix);
    return 0;
}

static double number(const char *name, const char *value, double least, double most)
{
    char *rest, fix[128];
    double read = strtod(value, &rest);
    if (rest == value || *rest || !(read >= least && read <= most)) {
        snprintf(fix, sizeof fix, "give a number from %.10g to %.10g", least, most);
        refuse(name, value, fix);
    }
    return read;
}

/* Microseconds, separated by commas. */
static void read_list(options *set, const char *name, const char *value)
{
    char copy[256];
    if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy)
        refuse(name, value, "give fewer numbers");
    for (char *part = copy, *next; part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (set->kernel_count == LIST)
            refuse(name, value, "give at most 16 numbers");
        set->kernel_us[set->kernel_count++] = (unsigned)number(name, part, 1, 10e6);
    }
}

/* The durations, each once. */
static size_t distinct(const options *set, unsigned *different)
{
    size_t count = 0;
    for (size_t i = 0; i < set->kernel_count; i++) {
        size_t same = 0;
        while (same < count && different[same] != set->kernel_us[i])
            same++;
        if (same == count)
            different[count++] = set->kernel_us[i];
    }
    return count;
}

static options read_options(int argc, char **argv)
{
    options set = {.seconds = 10, .busy_percent = 10, .period_us = 100000, .chain = 30, .queue_ms = 500};
    enum { WORK, KERNELS, SECONDS, DEVICE, HOST, BUSY, PERIOD, LAUNCHER, WAIT, CHAIN, QUEUE, TICKS,
           ROUNDS, SEED, STEPS, PTX };
    static const struct option known[] = {
        {"work", 1, NULL, WORK},         {"kernel-us", 1, NULL, KERNELS},
        {"seconds", 1, NULL, SECONDS},   {"device", 1, NULL, DEVICE},
        {"host-us", 1, NULL, HOST},      {"busy-percent", 1, NULL, BUSY},
        {"period-us", 1, NULL, PERIOD},  {"launcher", 1, NULL, LAUNCHER},
        {"wait", 1, NULL, WAIT},         {"chain", 1, NULL, CHAIN},
        {"queue-ms", 1, NULL, QUEUE},    {"ticks", 1, NULL, TICKS},
        {"rounds-per-us", 1, NULL, ROUNDS}, {"seed", 1, NULL, SEED},
        {"steps", 0, NULL, STEPS},       {"print-ptx", 0, NULL, PTX}, {NULL, 0, NULL, 0}};
    int option, index = 0;
    while ((option = getopt_long(argc, argv, "", known, &index)) != -1) {
        const char *name = known[index].name;
        switch (option) {
        case WORK: set.work = (work)choose(name, optarg, work_names); break;
        case KERNELS: read_list(&set, name, optarg); break;
        case SECONDS: set.seconds = number(name, optarg, 0, 1e6); break;
        case DEVICE: set.device = (int)number(name, optarg, 0, 255); break;
        case HOST: set.host_us = (unsigned)number(name, optarg, 0, 1e9); break;
        case BUSY: set.busy_percent = (unsigned)number(name, optarg, 1, 100); break;
        case PERIOD: set.period_us = (unsigned)number(name, optarg, 1, 1e9); break;
        case LAUNCHER: set.launcher = (launcher)choose(name, optarg, launcher_names); break;
        case WAIT: set.wait = (waiting)choose(name, optarg, waiting_names); break;
        case CHAIN: set.chain = (unsigned)number(name, optarg, 1, 10000); break;
        case QUEUE: set.queue_ms = (unsigned)number(name, optarg, 1, 1e6); break;
        case TICKS: set.tick_ms = (unsigned)number(name, optarg, 1, 1e6); break;
        case ROUNDS: set.rounds_per_us = (uint64_t)number(name, optarg, 0, 1e9); break;
        case SEED: set.seed = (uint64_t)number(name, optarg, 0, 1e9); break;
        case STEPS: set.steps = 1; break;
        case PTX: set.print_ptx = 1; break;
        default: exit(2); /* getopt has printed the unknown option */
        }
    }
    if (optind < argc) {
        fprintf(stderr, "load: %s: every argument begins with --\n", argv[optind]);
        exit(2);
    }
    if (!set.kernel_count)
        set.kernel_us[set.kernel_count++] = 500;
    return set;
}
