/* The console's commands for green contexts:
 *
 *   green g 16               one with at least 16 multiprocessors; a device's number may follow
 *   green_context c g        its handle as a context, for `current c`
 *   green_stream s g         a stream of it
 *   green_sms g              its multiprocessors
 *   green_free g */
#pragma once
#include "console.h"

static CUgreenCtx greens[SLOTS];

static int create_green(CUgreenCtx *green, unsigned least, CUdevice device)
{
    CUdevResource all, group;
    CUdevResourceDesc descriptor = NULL;
    unsigned groups = 1;
    int result = CALL(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM);
    result = result ? result : CALL(cuDevSmResourceSplitByCount, &group, &groups, &all, NULL, 0, least);
    result = result ? result : CALL(cuDevResourceGenerateDesc, &descriptor, &group, 1);
    return result ? result
                  : CALL(cuGreenCtxCreate, green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM);
}

static int green_contexts(char **a)
{
    if (IS("green")) {
        CUgreenCtx *green = &SLOT(greens, a[1]);
        ANSWER(create_green(green, (unsigned)NUMBER(2, 1), NUMBER(3, 0)), "%s", POINTER(*green));
    }
    if (IS("green_context")) {
        CUcontext *context = &SLOT(contexts, a[1]);
        ANSWER(CALL(cuCtxFromGreenCtx, context, SLOT(greens, a[2])), "%s", POINTER(*context));
    }
    if (IS("green_stream"))
        return CALL(cuGreenCtxStreamCreate, &SLOT(streams, a[1]), SLOT(greens, a[2]),
                    CU_STREAM_NON_BLOCKING, 0);
    if (IS("green_sms")) {
        CUdevResource found = {0};
        ANSWER(CALL(cuGreenCtxGetDevResource, SLOT(greens, a[1]), &found, CU_DEV_RESOURCE_TYPE_SM),
               "sms=%u", found.sm_count);
    }
    if (IS("green_free"))
        return CALL(cuGreenCtxDestroy, SLOT(greens, a[1]));
    return launches_and_streams(a);
}
