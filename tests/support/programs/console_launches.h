/* The console's commands for everything around launches: the launch functions, modules, contexts,
 * streams, events, captures and graphs. */
#pragma once
#include "console.h"

/* The stub finds every kernel in a module; one named work_20us lasts 20 us. */
#define PTX ".version 7.0\n.target sm_50\n"

static CUmodule modules[SLOTS];
static handle launchables[SLOTS]; /* kernels and executable graphs */
static CUevent events[SLOTS];
static CUgraph graphs[SLOTS];
static unsigned callbacks;

struct launch {
    handle what;
    CUstream stream;
    unsigned blocks;
};

static void *none;

/* One function for each way in which arguments are passed; `f` is the driver's function. */
#define WAY(name, symbol, ...) \
    static int name(void *f, struct launch l) { return ((__typeof__(&symbol))f)(__VA_ARGS__); }
#define BLOCKS l.blocks, 1, 1, 1, 1, 1, 0

WAY(as_kernel, cuLaunchKernel, l.what, BLOCKS, l.stream, &none, NULL)
WAY(as_cooperative, cuLaunchCooperativeKernel, l.what, BLOCKS, l.stream, &none)
WAY(as_config, cuLaunchKernelEx, &(CUlaunchConfig){{l.blocks, 1, 1}, {1, 1, 1}, 0, l.stream, NULL, 0},
    l.what, &none, NULL)
WAY(on_devices, cuLaunchCooperativeKernelMultiDevice,
    &(CUDA_LAUNCH_PARAMS){l.what, {l.blocks, 1, 1}, {1, 1, 1}, 0, l.stream, &none}, 1, 0)
WAY(as_one, cuLaunch, l.what)
WAY(as_grid, cuLaunchGrid, l.what, (int)l.blocks, 1)
WAY(as_grid_async, cuLaunchGridAsync, l.what, (int)l.blocks, 1, l.stream)
WAY(as_graph, cuGraphLaunch, l.what, l.stream)

#define SYMBOL(name, way) {#name, (void *)name, way}
static const struct launch_function {
    const char *name;
    void *linked;
    int (*call)(void *function, struct launch launch);
} launch_functions[] = {
    SYMBOL(cuLaunchKernel, as_kernel),
    SYMBOL(cuLaunchKernel_ptsz, as_kernel),
    SYMBOL(cuLaunchKernelEx, as_config),
    SYMBOL(cuLaunchKernelEx_ptsz, as_config),
    SYMBOL(cuLaunchCooperativeKernel, as_cooperative),
    SYMBOL(cuLaunchCooperativeKernel_ptsz, as_cooperative),
    SYMBOL(cuLaunchCooperativeKernelMultiDevice, on_devices),
    SYMBOL(cuLaunch, as_one),
    SYMBOL(cuLaunchGrid, as_grid),
    SYMBOL(cuLaunchGridAsync, as_grid_async),
    SYMBOL(cuGraphLaunch, as_graph),
    SYMBOL(cuGraphLaunch_ptsz, as_graph),
};

/* Launches so many times; the first result that is no success. */
static int launch_by(const char *name, struct launch launch, unsigned times)
{
    for (size_t i = 0; i < sizeof launch_functions / sizeof *launch_functions; i++) {
        const struct launch_function *function = &launch_functions[i];
        if (strcmp(function->name, name))
            continue;
        void *found = find(function->name, function->linked);
        int result = found ? 0 : -1;
        while (times-- && result == 0)
            result = function->call(found, launch);
        return result;
    }
    SAY(" FAILED no launch function %s", name);
    exit(2);
}

static void called_back(void *unused)
{
    (void)unused;
    __atomic_fetch_add(&callbacks, 1, __ATOMIC_SEQ_CST);
}

/* NULL where there is no such file. */
static const char *read_image(const char *path)
{
    static char image[65536];
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    image[fread(image, 1, sizeof image - 1, file)] = '\0';
    fclose(file);
    return image;
}

static int load_module(CUmodule *module, const char *path)
{
    const char *image = read_image(path);
    if (!image)
        ANSWER(CUDA_ERROR_NOT_FOUND, "no_file=1");
    return CALL(cuModuleLoadData, module, image);
}

/* A graph's nodes by type, in the graph's order, and how many edges it has. */
static int show(CUgraph graph)
{
    CUgraphNode nodes[64];
    size_t count = 64, edges = 0;
    int result = CALL(cuGraphGetNodes, graph, nodes, &count);
    if (result || count > 64)
        return result ? result : -1;
    for (size_t i = 0; i < count; i++) {
        int type = -1;
        MUST(CALL(cuGraphNodeGetType, nodes[i], &type));
        OUT("%d", type);
    }
    ANSWER(CALL(cuGraphGetEdges, graph, NULL, NULL, &edges), "edges=%zu", edges);
}

static int captures_and_graphs(char **a)
{
    if (IS("begin"))
        return CALL(cuStreamBeginCapture_v2, STREAM(1), NUMBER(2, 0));
    if (IS("end"))
        return CALL(cuStreamEndCapture, STREAM(1), &SLOT(graphs, a[2]));
    if (IS("capturing")) {
        int status = -1;
        ANSWER(CALL(cuStreamIsCapturing, STREAM(1), &status), "%d", status);
    }
    if (IS("mode")) {
        int mode = atoi(a[1]);
        ANSWER(CALL(cuThreadExchangeStreamCaptureMode, &mode), "was=%d", mode);
    }
    if (IS("show"))
        return show(SLOT(graphs, a[1]));
    if (IS("instantiate"))
        return CALL(cuGraphInstantiateWithFlags, &SLOT(launchables, a[1]), SLOT(graphs, a[2]),
                    (unsigned long long)NUMBER(3, 0));
    if (IS("destroy_graph"))
        return CALL(cuGraphDestroy, SLOT(graphs, a[1]));
    if (IS("destroy_executable"))
        return CALL(cuGraphExecDestroy, SLOT(launchables, a[1]));
    SAY(" FAILED no such command");
    exit(2);
}

static int streams_and_events(char **a)
{
    if (IS("stream"))
        return CALL(cuStreamCreate, &SLOT(streams, a[1]), (unsigned)NUMBER(2, CU_STREAM_NON_BLOCKING));
    if (IS("destroy_stream"))
        return CALL(cuStreamDestroy_v2, STREAM(1));
    if (IS("stream_id")) {
        unsigned long long id = UNTOUCHED;
        ANSWER(CALL(cuStreamGetId, STREAM(1), &id), "id=%llu", id);
    }
    if (IS("sync"))
        return CALL(cuStreamSynchronize, STREAM(1));
    if (IS("query"))
        return CALL(cuStreamQuery, STREAM(1));
    if (IS("callback"))
        return CALL(cuLaunchHostFunc, STREAM(1), called_back, NULL);
    if (IS("callbacks"))
        return (int)__atomic_load_n(&callbacks, __ATOMIC_SEQ_CST);
    if (IS("event"))
        return CALL(cuEventCreate, &SLOT(events, a[1]), (unsigned)NUMBER(2, 0));
    if (IS("destroy_event"))
        return CALL(cuEventDestroy_v2, SLOT(events, a[1]));
    if (IS("record")) /* not by the function that the library uses, so that tests tell them apart */
        return CALL(cuEventRecordWithFlags, SLOT(events, a[1]), STREAM(2), 0);
    if (IS("wait"))
        return CALL(cuStreamWaitEvent, STREAM(1), SLOT(events, a[2]), 0);
    if (IS("query_event"))
        return CALL(cuEventQuery, SLOT(events, a[1]));
    if (IS("sync_event"))
        return CALL(cuEventSynchronize, SLOT(events, a[1]));
    if (IS("sync_new_event") || IS("query_new_event")) { /* recorded now, on this stream */
        CUevent event = NULL;
        MUST(CALL(cuEventCreate, &event, 0));
        MUST(CALL(cuEventRecord, event, STREAM(1)));
        int result = IS("sync_new_event") ? CALL(cuEventSynchronize, event) : CALL(cuEventQuery, event);
        MUST(CALL(cuEventDestroy_v2, event));
        return result;
    }
    if (IS("elapsed")) {
        float milliseconds = -1;
        ANSWER(CALL(cuEventElapsedTime, &milliseconds, SLOT(events, a[1]), SLOT(events, a[2])),
               "%.3f", (double)milliseconds);
    }
    return captures_and_graphs(a);
}

static int contexts_and_devices(char **a)
{
    if (IS("init"))
        return CALL(cuInit, 0);
    if (IS("device")) { /* the primary context of device NUMBER, which gets a NAME where one follows */
        CUcontext *context = &SLOT(contexts, a[2] ? a[2] : "!");
        int result = CALL(cuDevicePrimaryCtxRetain, context, NUMBER(1, 0));
        ANSWER(result ? result : CALL(cuCtxSetCurrent, *context), "%s", POINTER(*context));
    }
    if (IS("context")) {
        CUcontext *context = &SLOT(contexts, a[1]);
        ANSWER(CALL(cuCtxCreate_v2, context, 0, NUMBER(2, 0)), "%s", POINTER(*context));
    }
    if (IS("context_v3") || IS("context_v4")) { /* without affinities and other parameters */
        CUcontext *context = &SLOT(contexts, a[1]);
        int result = IS("context_v3") ? CALL(cuCtxCreate_v3, context, NULL, 0, 0, NUMBER(2, 0))
                                      : CALL(cuCtxCreate_v4, context, NULL, 0, NUMBER(2, 0));
        ANSWER(result, "%s", POINTER(*context));
    }
    if (IS("current"))
        return CALL(cuCtxSetCurrent, SLOT(contexts, a[1]));
    if (IS("push"))
        return CALL(cuCtxPushCurrent_v2, SLOT(contexts, a[1]));
    if (IS("pop"))
        return CALL(cuCtxPopCurrent_v2, &SLOT(contexts, "!"));
    if (IS("destroy"))
        return CALL(cuCtxDestroy_v2, SLOT(contexts, a[1]));
    if (IS("reset"))
        return CALL(cuDevicePrimaryCtxReset_v2, NUMBER(1, 0));
    if (IS("release"))
        return CALL(cuDevicePrimaryCtxRelease_v2, NUMBER(1, 0));
    if (IS("sync_context"))
        return CALL(cuCtxSynchronize);
    return streams_and_events(a);
}

static int launches_and_streams(char **a)
{
    if (IS("launch")) {
        struct launch launch = {SLOT(launchables, a[2]), STREAM(3), (unsigned)NUMBER(4, 1)};
        return launch_by(a[1], launch, (unsigned)NUMBER(5, 1));
    }
    if (IS("launch_on_two")) {
        CUDA_LAUNCH_PARAMS list[] = {
            {SLOT(launchables, a[1]), {1, 1, 1}, {1, 1, 1}, 0, STREAM(2), &none},
            {SLOT(launchables, a[3]), {1, 1, 1}, {1, 1, 1}, 0, STREAM(4), &none}};
        return CALL(cuLaunchCooperativeKernelMultiDevice, list, 2, 0);
    }
    if (IS("launch_with")) { /* two numbers, as the kernel's parameters */
        unsigned long long first = size(a[3]), second = a[4] ? size(a[4]) : 0;
        void *parameters[] = {&first, &second};
        return CALL(cuLaunchKernel, SLOT(launchables, a[1]), 1, 1, 1, 1, 1, 1, 0, STREAM(2),
                    parameters, NULL);
    }
    if (IS("busy")) { /* one kernel on this stream */
        CUmodule module;
        CUfunction function;
        MUST(CALL(cuModuleLoadData, &module, PTX));
        MUST(CALL(cuModuleGetFunction, &function, module, "work"));
        return CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, STREAM(1), &none, NULL);
    }
    if (IS("kernel")) { /* the oldest launch functions take the blocks' shape from the kernel */
        CUfunction *function = &SLOT(launchables, a[1]);
        int result = CALL(cuModuleGetFunction, function, SLOT(modules, a[2]), a[3]);
        int has_shape = find("cuFuncSetBlockShape", (void *)cuFuncSetBlockShape) != NULL;
        return result || !has_shape ? result : CALL(cuFuncSetBlockShape, *function, 1, 1, 1);
    }
    if (IS("module"))
        return a[2] ? load_module(&SLOT(modules, a[1]), a[2])
                    : CALL(cuModuleLoadData, &SLOT(modules, a[1]), PTX);
    if (IS("unload"))
        return CALL(cuModuleUnload, SLOT(modules, a[1]));
    return contexts_and_devices(a);
}
