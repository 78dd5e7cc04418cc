// build: -ldl
/* different SECONDS COUNT US WHAT BEFORE: launches BEFORE kernels of 20 us, and then COUNT different
 * functions of US microseconds by turns, and lets up to 5 s of them, or 1,024, wait in the driver's
 * queue. WHAT: kernels, or graphs of twenty kernels, which together take US microseconds.
 *
 * One JSON line at the end: completed launches, and after how long each function had run once. */
#include "plain.h"

enum { MOST = 1024, CHAIN = 20, QUEUE_US = 5000000, MARK_US = 1000, THREAD_LOCAL = 1 };

static handle functions[MOST], events[MOST], stream;

static handle graph_of(handle function)
{
    handle captured, graph;
    DO(cuStreamBeginCapture_v2, stream, THREAD_LOCAL);
    for (int i = 0; i < CHAIN; i++)
        launch(function, WHOLE_CARD, stream);
    DO(cuStreamEndCapture, stream, &captured);
    DO(cuGraphInstantiateWithFlags, &graph, captured, 0);
    return graph;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

int main(int argc, char **argv)
{
    uint64_t count = argc == 6 ? (uint64_t)atoi(argv[2]) : 0, us = argc == 6 ? (uint64_t)atoi(argv[3]) : 0;
    if (count < 1 || count > MOST || us < 1) {
        fprintf(stderr, "different: SECONDS COUNT US WHAT, 1 to %d functions\n", MOST);
        return 2;
    }
    int graphs = strcmp(argv[4], "graphs") == 0;
    char each_us[32];
    snprintf(each_us, sizeof each_us, "%" PRIu64, graphs ? us / CHAIN : us);
    open_driver();
    use_card(0);
    stream = new_stream();
    for (uint64_t i = 0; i < count; i++) {
        handle function = kernel_of_us(each_us);
        functions[i] = graphs ? graph_of(function) : function;
    }
    for (int i = 0; i < MOST; i++)
        DO(cuEventCreate, &events[i], CU_EVENT_DISABLE_TIMING);
    /* An event is behind so many launches, and so many events may be in flight. */
    uint64_t launches = larger(MARK_US / us, 1), ahead = smaller(larger(QUEUE_US / us, 2), MOST) / launches;
    handle first = kernel_of_us("20");
    for (int i = atoi(argv[5]); i > 0; i--)
        launch(first, WHOLE_CARD, stream);
    uint64_t start = now(), end = after(start, argv[1]), marks = 0, done = 0, once_ns = 0;
    while (now() < end) {
        for (uint64_t i = 0; i < launches; i++) {
            handle function = functions[(marks * launches + i) % count];
            if (graphs)
                DO(cuGraphLaunch, function, stream);
            else
                launch(function, WHOLE_CARD, stream);
        }
        DO(cuEventRecord, events[marks++ % MOST], stream);
        while (done + ahead <= marks) {
            DO(cuEventSynchronize, events[done++ % MOST]);
            if (!once_ns && done * launches >= count)
                once_ns = now() - start;
        }
    }
    while (done < marks && CALL(cuEventQuery, events[done % MOST]) == 0)
        done++;
    printf("{\"completed\": %" PRIu64 ", \"once_ns\": %" PRIu64 ", \"elapsed_ns\": %" PRIu64 "}\n",
           done * launches, once_ns, now() - start);
    return 0;
}
