/* What there is around launches: contexts, modules, streams, events, captures and graphs, each with
 * a name of a letter, or a letter and a digit; `-` is NULL, the streams `L` and `P` are those that
 * every context has. */
#pragma once
#include <semaphore.h>
#include <stdarg.h>
#include "launches.h"

typedef void *CUmodule;
typedef void *CUevent;
typedef void *CUgraph;
typedef void *CUgraphNode;

CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamGetId(CUstream stream, unsigned long long *id);
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
CUresult cuGraphInstantiateWithFlags(void **executable, CUgraph graph, unsigned long long flags);
CUresult cuGraphExecDestroy(void *executable);
CUresult cuGraphDestroy(CUgraph graph);

/* A name's place in a table. */
static inline unsigned slot(const char *name)
{
    return ((unsigned char)name[0] % 128u) + (name[1] ? 128u * (unsigned)(name[1] - '0' + 1) : 0u);
}

#define SLOTS (128 * 11)
#define SLOT(table, name) (table)[slot(name) % SLOTS]

static CUcontext contexts[SLOTS];
static CUmodule modules[SLOTS];
/* Kernels and executable graphs. */
static void *launchables[SLOTS];
static CUstream streams[SLOTS];
static CUevent events[SLOTS];
static CUgraph graphs[SLOTS];
static unsigned calls_back;

/* The out values of the calling thread's last command. */
static __thread char said[256];

#define IS(name) (strcmp(a[0], name) == 0)
#define ONE (a[1] ? a[1] : "-")
#define NUMBER(place, otherwise) (a[place] ? atoi(a[place]) : (otherwise))

__attribute__((format(printf, 1, 2))) static void OUT(const char *format, ...)
{
    va_list arguments;
    size_t length = strlen(said);
    va_start(arguments, format);
    said[length++] = ' ';
    vsnprintf(said + length, sizeof said - length, format, arguments);
    va_end(arguments);
}

static void called_back(void *unused)
{
    (void)unused;
    __atomic_fetch_add(&calls_back, 1, __ATOMIC_SEQ_CST);
}

/* A graph's nodes by type, in the graph's order, and how many edges it has. */
static int show(CUgraph graph)
{
    CUgraphNode nodes[64];
    size_t count = 64, edges = 0;
    int result = cuGraphGetNodes(graph, nodes, &count);
    if (result || count > 64)
        return result ? result : -1;
    for (size_t i = 0; i < count; i++) {
        int type = -1;
        MUST(cuGraphNodeGetType(nodes[i], &type));
        OUT("%d", type);
    }
    result = cuGraphGetEdges(graph, NULL, NULL, &edges);
    OUT("edges=%zu", edges);
    return result;
}

static int captures_and_graphs(char **a)
{
    if (IS("begin"))
        return cuStreamBeginCapture_v2(SLOT(streams, a[1]), NUMBER(2, 0));
    if (IS("end"))
        return cuStreamEndCapture(SLOT(streams, a[1]), &SLOT(graphs, a[2]));
    if (IS("capturing")) {
        int status = -1, result = cuStreamIsCapturing(SLOT(streams, a[1]), &status);
        OUT("%d", status);
        return result;
    }
    if (IS("mode")) {
        int mode = atoi(a[1]), result = cuThreadExchangeStreamCaptureMode(&mode);
        OUT("was=%d", mode);
        return result;
    }
    if (IS("show"))
        return show(SLOT(graphs, a[1]));
    if (IS("instantiate"))
        return cuGraphInstantiateWithFlags(&SLOT(launchables, a[1]), SLOT(graphs, a[2]), 0);
    if (IS("destroy_graph"))
        return cuGraphDestroy(SLOT(graphs, a[1]));
    if (IS("destroy_executable"))
        return cuGraphExecDestroy(SLOT(launchables, a[1]));
    SAY(" FAILED no such command");
    exit(2);
}

static int streams_and_events(char **a)
{
    if (IS("stream"))
        return cuStreamCreate(&SLOT(streams, a[1]), (unsigned)NUMBER(2, 1));
    if (IS("destroy_stream"))
        return cuStreamDestroy_v2(SLOT(streams, a[1]));
    if (IS("stream_id")) {
        unsigned long long id = UNTOUCHED;
        int result = cuStreamGetId(SLOT(streams, a[1]), &id);
        OUT("id=%llu", id);
        return result;
    }
    if (IS("sync"))
        return cuStreamSynchronize(SLOT(streams, ONE));
    if (IS("query"))
        return cuStreamQuery(SLOT(streams, ONE));
    if (IS("callback"))
        return cuLaunchHostFunc(SLOT(streams, ONE), called_back, NULL);
    if (IS("calls_back"))
        return (int)__atomic_load_n(&calls_back, __ATOMIC_SEQ_CST);
    if (IS("event"))
        return cuEventCreate(&SLOT(events, a[1]), (unsigned)NUMBER(2, 0));
    if (IS("destroy_event"))
        return cuEventDestroy_v2(SLOT(events, a[1]));
    if (IS("record")) /* not by the function that the library uses, so that tests tell them apart */
        return cuEventRecordWithFlags(SLOT(events, a[1]), SLOT(streams, a[2]), 0);
    if (IS("wait"))
        return cuStreamWaitEvent(SLOT(streams, a[1]), SLOT(events, a[2]), 0);
    if (IS("query_event"))
        return cuEventQuery(SLOT(events, a[1]));
    if (IS("sync_event"))
        return cuEventSynchronize(SLOT(events, a[1]));
    if (IS("elapsed")) {
        float milliseconds = -1;
        int result = cuEventElapsedTime(&milliseconds, SLOT(events, a[1]), SLOT(events, a[2]));
        OUT("%.3f", (double)milliseconds);
        return result;
    }
    return captures_and_graphs(a);
}

/* The first argument is what is done, the others to what. What nothing knows is the test's error. */
static int scene(char **a)
{
    if (IS("launch")) {
        struct launch launch = {SLOT(launchables, a[2]), SLOT(streams, a[3]),
                                (unsigned)NUMBER(4, 1)};
        return launch_by(a[1], launch, (unsigned)NUMBER(5, 1));
    }
    if (IS("launch_on_two")) {
        struct launch one = {SLOT(launchables, a[1]), SLOT(streams, a[2]), 1};
        struct launch other = {SLOT(launchables, a[3]), SLOT(streams, a[4]), 1};
        return launch_on_two(one, other);
    }
    if (IS("road")) {
        strncpy(road, a[1], sizeof road - 1);
        return 0;
    }
    if (IS("kernel")) {
        CUfunction *function = &SLOT(launchables, a[1]);
        int result = cuModuleGetFunction(function, SLOT(modules, a[2]), a[3]);
        return result ? result : cuFuncSetBlockShape(*function, 1, 1, 1);
    }
    if (IS("module"))
        return cuModuleLoadData(&SLOT(modules, a[1]), ".version 7.0\n.target sm_50\n");
    if (IS("unload"))
        return cuModuleUnload(SLOT(modules, a[1]));
    if (IS("init"))
        return cuInit(0);
    if (IS("device")) { /* context NAME is the primary context of device NUMBER */
        int result = cuDevicePrimaryCtxRetain(&SLOT(contexts, a[1]), NUMBER(2, 0));
        return result ? result : cuCtxSetCurrent(SLOT(contexts, a[1]));
    }
    if (IS("context"))
        return cuCtxCreate_v2(&SLOT(contexts, a[1]), 0, NUMBER(2, 0));
    if (IS("current"))
        return cuCtxSetCurrent(SLOT(contexts, a[1]));
    if (IS("push"))
        return cuCtxPushCurrent_v2(SLOT(contexts, a[1]));
    if (IS("pop"))
        return cuCtxPopCurrent_v2(&SLOT(contexts, "!"));
    if (IS("destroy"))
        return cuCtxDestroy_v2(SLOT(contexts, a[1]));
    if (IS("reset"))
        return cuDevicePrimaryCtxReset_v2(NUMBER(1, 0));
    if (IS("release"))
        return cuDevicePrimaryCtxRelease_v2(NUMBER(1, 0));
    if (IS("sync_context"))
        return cuCtxSynchronize();
    return streams_and_events(a);
}
