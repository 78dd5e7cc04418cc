/* The console's commands for what the driver itself is and takes: its version and exports, limits,
 * libraries, and the variables of modules. */
#pragma once
#include "console_launches.h"
#include "console_memory.h"

static CUlibrary libraries[SLOTS];

static int limit_named(const char *name)
{
    static const char *const names[] = {"stack", "printf", "heap"};
    for (int limit = 0; limit < 3; limit++)
        if (strcmp(names[limit], name) == 0)
            return limit;
    SAY(" FAILED no limit %s", name);
    exit(2);
}

static int load_library(CUlibrary *library, const char *path)
{
    const char *image = path ? read_image(path) : PTX;
    if (!image)
        ANSWER(CUDA_ERROR_NOT_FOUND, "no_file=1");
    return CALL(cuLibraryLoadData, library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static int libraries_and_variables(char **a)
{
    CUlibrary library = a[1] && a[2] ? SLOT(libraries, a[2]) : NULL;
    if (IS("library")) /* of a file, or of the image of `module` */
        return load_library(&SLOT(libraries, a[1]), a[2]);
    if (IS("library_unload"))
        return CALL(cuLibraryUnload, SLOT(libraries, a[1]));
    if (IS("library_module"))
        return CALL(cuLibraryGetModule, &SLOT(modules, a[1]), library);
    if (IS("library_kernel")) /* a kernel can be launched like a function */
        return CALL(cuLibraryGetKernel, &SLOT(launchables, a[1]), library, a[3]);
    if (IS("kernel_function"))
        return CALL(cuKernelGetFunction, &SLOT(launchables, a[1]), SLOT(launchables, a[2]));
    if (IS("library_global") || IS("global")) {
        CUdeviceptr *address = &SLOT(pointers, a[1]);
        size_t size = UNTOUCHED;
        int result = IS("global")
                         ? CALL(cuModuleGetGlobal_v2, address, &size, SLOT(modules, a[2]), a[3])
                         : CALL(cuLibraryGetGlobal, address, &size, library, a[3]);
        ANSWER(result, "%s size=%s", pointer(*address), bytes(size));
    }
    return memory(a);
}

static int driver_itself(char **a)
{
    if (IS("version")) {
        int version = -1;
        ANSWER(CALL(cuDriverGetVersion, &version), "version=%d", version);
    }
    if (IS("exports"))
        ANSWER(0, "%d", dlsym(driver(), a[1]) != NULL);
    if (IS("limit"))
        return CALL(cuCtxSetLimit, limit_named(a[1]), size(a[2]));
    if (IS("limit_get")) {
        size_t value = UNTOUCHED;
        ANSWER(CALL(cuCtxGetLimit, &value, limit_named(a[1])), "value=%s", bytes(value));
    }
    return libraries_and_variables(a);
}
