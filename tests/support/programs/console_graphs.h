/* The console's commands for graphs that are built node by node, and for the memory of graphs.
 *
 *   graph g                     a new graph
 *   alloc_node n g 4M a b       allocates on device 0, after the nodes a and b; n is then also the
 *                               name of the memory (`alloc_node_on 1 n g 4M`: on device 1)
 *   free_node f g n a b         frees n's memory
 *   kernel_node k g w a b       launches kernel w
 *   upload e s                  uploads executable graph e on stream s
 *   instantiate_uploaded e g s  creates it and uploads it on stream s
 *   graph_attribute DEVICE 0    of the graph memory pool; `reset_graph_attribute DEVICE 1` sets it to 0
 *   graph_trim DEVICE           releases the pool's unused memory
 *
 * `instantiate`, `launch cuGraphLaunch e s`, `destroy_graph` and `destroy_executable` are in
 * console_launches.h, and so are captures. */
#pragma once
#include "console_launches.h"
#include "console_memory.h"

static CUgraphNode nodes[SLOTS];

/* The nodes of these names; returns how many. */
static size_t dependencies(char **names, CUgraphNode *found)
{
    size_t count = 0;
    for (; names[count]; count++)
        found[count] = SLOT(nodes, names[count]);
    return count;
}

/* `a` is the command without the device: its words have the places of `alloc_node`. */
static int allocation_node(char **a, CUdevice device)
{
    CUgraphNode after[WORDS];
    CUdeviceptr *address = &SLOT(pointers, a[1]);
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = pool_on(device), .bytesize = size(a[3])};
    int result = CALL(cuGraphAddMemAllocNode, &SLOT(nodes, a[1]), SLOT(graphs, a[2]), after,
                      dependencies(a + 4, after), &params);
    if (result == 0)
        *address = params.dptr;
    ANSWER(result, "%s", pointer(params.dptr));
}

static int graph_memory(char **a)
{
    CUgraphNode after[WORDS];
    unsigned long long value = UNTOUCHED;
    if (IS("graph"))
        return CALL(cuGraphCreate, &SLOT(graphs, a[1]), 0);
    if (IS("alloc_node"))
        return allocation_node(a, 0);
    if (IS("alloc_node_on"))
        return allocation_node(a + 1, atoi(a[1]));
    if (IS("free_node"))
        return CALL(cuGraphAddMemFreeNode, &SLOT(nodes, a[1]), SLOT(graphs, a[2]), after,
                    dependencies(a + 4, after), SLOT(pointers, a[3]));
    if (IS("kernel_node")) {
        CUDA_KERNEL_NODE_PARAMS params = {.func = SLOT(launchables, a[3]),
                                          .grid = {1, 1, 1},
                                          .block = {1, 1, 1},
                                          .kernelParams = &none};
        return CALL(cuGraphAddKernelNode_v2, &SLOT(nodes, a[1]), SLOT(graphs, a[2]), after,
                    dependencies(a + 4, after), &params);
    }
    if (IS("upload"))
        return CALL(cuGraphUpload, SLOT(launchables, a[1]), STREAM(2));
    if (IS("instantiate_uploaded")) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                                .upload_stream = STREAM(3)};
        ANSWER(CALL(cuGraphInstantiateWithParams, &SLOT(launchables, a[1]), SLOT(graphs, a[2]), &params),
               "outcome=%d", params.outcome);
    }
    if (IS("graph_attribute"))
        ANSWER(CALL(cuDeviceGetGraphMemAttribute, NUMBER(1, 0), NUMBER(2, 0), &value), "%s:%llu",
               a[2], value);
    if (IS("reset_graph_attribute"))
        return CALL(cuDeviceSetGraphMemAttribute, NUMBER(1, 0), NUMBER(2, 0),
                    &(unsigned long long){0});
    if (IS("graph_trim"))
        return CALL(cuDeviceGraphMemTrim, NUMBER(1, 0));
    return driver_itself(a);
}
