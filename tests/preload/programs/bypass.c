// build: -shared -fPIC -ldl
/* A library that is preloaded before ours and bypasses it, for the one kind of lookup that it is built
 * for; its functions report a card of 1 TiB. */
#include <dlfcn.h>
#include <string.h>
#include "find_dlsym.h"

__attribute__((unused)) static int unlimited(size_t *bytes, int device)
{
    (void)device;
    *bytes = 1ull << 40;
    return 0;
}

#ifdef DIRECT_LINK
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    return unlimited(bytes, device);
}
#endif

#ifdef DIRECT_LINK_GRANTS
int cuMemAlloc_v2(unsigned long long *pointer, size_t size)
{
    (void)size;
    *pointer = 512;
    return 0;
}
int cuMemFree_v2(unsigned long long pointer)
{
    return pointer == 512 ? 0 : 1;
}
#endif

#ifdef DIRECT_LINK_REFUSES
int cuMemAlloc_v2(unsigned long long *pointer, size_t size)
{
    (void)pointer, (void)size;
    return 2;
}
#endif

#ifdef BY_DLVSYM
static void *old_dlsym(void *handle, const char *symbol)
{
    if (!strcmp(symbol, "cuDeviceTotalMem_v2"))
        return unlimited;
    return dlsym(handle, symbol);
}
void *dlvsym(void *handle, const char *symbol, const char *version)
{
    (void)version;
    return strcmp(symbol, "dlsym") ? dlsym(handle, symbol) : old_dlsym;
}
#endif

#ifdef BY_DLSYM
static void *replaced(const char *symbol)
{
    return strcmp(symbol, BY_DLSYM) ? NULL : unlimited;
}
#endif

#ifdef BY_PROC_ADDRESS
static dlsym_function *next;
static void *handle_of_driver;

static int lookup_v1(const char *name, void **found, int version, unsigned long long flags)
{
    int (*real)(const char *, void **, int, unsigned long long) =
        next(handle_of_driver, "cuGetProcAddress");
    int result = real(name, found, version, flags);
    if (flags == FLAGS && !strcmp(name, "cuDeviceTotalMem"))
        *found = unlimited;
    return result;
}
static int lookup_v2(const char *name, void **found, int version, unsigned long long flags, int *s)
{
    int (*real)(const char *, void **, int, unsigned long long, int *) =
        next(handle_of_driver, "cuGetProcAddress_v2");
    int result = real(name, found, version, flags, s);
    if (flags == FLAGS && !strcmp(name, "cuDeviceTotalMem"))
        *found = unlimited;
    return result;
}
static void *replaced(const char *symbol)
{
    if (strcmp(symbol, BY_PROC_ADDRESS))
        return NULL;
    return strstr(symbol, "_v2") ? (void *)lookup_v2 : (void *)lookup_v1;
}
#endif

#ifdef NVML
/* nvmlMemory_t */
static int memory(void *device, unsigned long long *total_free_used)
{
    (void)device;
    total_free_used[0] = 1ull << 40;
    return 0;
}
static void *replaced(const char *symbol)
{
    return strcmp(symbol, "nvmlDeviceGetMemoryInfo") ? NULL : memory;
}
#endif

#ifdef HIDE
/* An older driver. */
static void *replaced(const char *symbol)
{
    (void)symbol;
    return NULL;
}
#endif

#if defined BY_DLSYM || defined BY_PROC_ADDRESS || defined NVML || defined HIDE
void *dlsym(void *handle, const char *symbol)
{
    dlsym_function *real = versioned_dlsym(RTLD_NEXT);
#ifdef BY_PROC_ADDRESS
    next = real;
    handle_of_driver = handle;
#endif
#ifdef HIDE
    if (!strcmp(symbol, HIDE))
        return NULL;
#endif
    void *instead = replaced(symbol);
    return instead ? instead : real(handle, symbol);
}
#endif
