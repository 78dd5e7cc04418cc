/* What all commands of the console share: names for objects, the way in which driver functions are
 * found, and the out values of the answer. */
#pragma once
#define DRIVER_API __attribute__((weak))
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include "lookup.h"
#include "trace.h"

enum { LINE = 1024, WORDS = 24, NUMBERS = 128, SLOTS = 128 * (NUMBERS + 1) };

/* An object's name is a letter, or a letter and a number below 128. */
static inline unsigned index_of(const char *name)
{
    unsigned number = name[1] ? 1 + (unsigned)atoi(name + 1) % NUMBERS : 0;
    return (unsigned char)name[0] % 128u + 128u * number;
}

#define SLOT(table, name) (table)[index_of(name)]
#define IS(name) (strcmp(a[0], name) == 0)
#define NUMBER(position, otherwise) (a[position] ? atoi(a[position]) : (otherwise))
/* A stream that may be left out. */
#define STREAM(position) SLOT(streams, a[position] ? a[position] : "-")

static CUcontext contexts[SLOTS];
static CUstream streams[SLOTS];

/* The out values of the calling thread's last command. */
static __thread char outputs[LINE];

__attribute__((format(printf, 1, 2))) static void OUT(const char *format, ...)
{
    va_list arguments;
    size_t length = strlen(outputs);
    va_start(arguments, format);
    outputs[length++] = ' ';
    vsnprintf(outputs + length, sizeof outputs - length, format, arguments);
    va_end(arguments);
}

/* Gives the out values whatever the result is: what a refused call leaves alone is tested, too. */
#define ANSWER(call, ...)    \
    do {                     \
        int result_ = (call); \
        OUT(__VA_ARGS__);    \
        return result_;      \
    } while (0)

/* How driver functions are found: by the linker, by dlsym, by cuGetProcAddress, or by
 * cuGetProcAddress with the flag for per-thread default streams. */
static enum { LINK, DLSYM, PROC_ADDRESS, PER_THREAD } lookup;
static const char *const lookups[] = {"link", "dlsym", "proc_address", "per_thread", NULL};

static int choose_lookup(const char *name)
{
    for (int i = 0; lookups[i]; i++)
        if (strcmp(lookups[i], name) == 0) {
            lookup = i;
            return 0;
        }
    SAY(" FAILED no lookup %s", name);
    exit(2);
}

static void *driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

/* CUDA 11.2 is the oldest version that has pools; 12.0 finds what is newer. */
static void *look_up(const char *symbol)
{
    enum { WITH_POOLS = 11020, NEWER = 12000 };
    char base[64];
    void *function = NULL;
    snprintf(base, sizeof base, "%s", symbol);
    char *suffix = strstr(base, "_v2"), *per_thread = strstr(base, "_ptsz");
    if (suffix)
        *suffix = '\0';
    if (per_thread)
        *per_thread = '\0';
    uint64_t flags = per_thread || lookup == PER_THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                      : CU_GET_PROC_ADDRESS_DEFAULT;
    if (proc_address(driver(), base, &function, WITH_POOLS, flags) || !function)
        proc_address(driver(), base, &function, NEWER, flags);
    return function;
}

static void *find(const char *symbol, void *linked)
{
    return lookup == LINK    ? linked
           : lookup == DLSYM ? dlsym(driver(), symbol)
                             : look_up(symbol);
}

/* The call's result; the command ends here where the driver has no such function. */
#define CALL(symbol, ...)                                                                   \
    __extension__({                                                                         \
        __typeof__(&symbol) function_ = (__typeof__(&symbol))find(#symbol, (void *)symbol); \
        if (!function_)                                                                     \
            ANSWER(CUDA_ERROR_NOT_FOUND, "missing=1");                                      \
        function_(__VA_ARGS__);                                                             \
    })

static size_t size(const char *text)
{
    char *unit;
    size_t number = strtoull(text, &unit, 0);
    return number * (*unit == 'G' ? GiB : *unit == 'M' ? MiB : *unit == 'K' ? KiB : 1);
}
