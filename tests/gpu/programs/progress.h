/* Counts the work that the device has finished, which is less than was launched.
 *
 * A lane is a stream with its work in order. The program records an event after about every millisecond
 * of work; everything before the last event that has passed is finished. The same events limit the
 * queue, because the program has to wait for all queued work before it ends. */
#pragma once
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "driver.h"

enum { MARKS = 1024, LANES = 16 };

#define MARK_EACH_NS 1000000ull
/* As deep as a driver's own queue is. */
#define QUEUED_LAUNCHES 1024ull
#define MARK_EACH_LAUNCHES 64ull

typedef struct { uint64_t launches, ns; } amount;

static inline amount plus(amount a, amount b) { return (amount){a.launches + b.launches, a.ns + b.ns}; }
static inline amount less(amount a, amount b) { return (amount){a.launches - b.launches, a.ns - b.ns}; }

typedef struct { handle event; amount before; } mark;

typedef struct {
    handle stream;
    mark marks[MARKS]; /* a ring */
    size_t first, count;
    amount launched, marked, done;
} lane;

static lane lanes[LANES];
static size_t lane_count;

/* The most work that a lane may have in flight. */
static uint64_t queue_limit_ns;

static struct { uint64_t each, next; } ticks;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t instant)
{
    struct timespec until = {(time_t)(instant / 1000000000ull), (long)(instant % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static lane *add_lane(unsigned flags)
{
    lane *added = &lanes[lane_count++];
    DO(cuStreamCreate, &added->stream, flags);
    return added;
}

static void pass_first(lane *l)
{
    l->done = l->marks[l->first].before;
    l->first = (l->first + 1) % MARKS;
    l->count--;
}

/* Marks all work of the lane as done, after a wait for it. */
static void finish_lane(lane *l)
{
    l->count = 0;
    l->marked = l->done = l->launched;
}

static void reap(lane *l)
{
    while (l->count) {
        int result = CALL(cuEventQuery, l->marks[l->first].event);
        if (result == CUDA_ERROR_NOT_READY)
            return;
        must(result, "cuEventQuery");
        pass_first(l);
    }
}

static void put_mark(lane *l)
{
    mark *next = &l->marks[(l->first + l->count) % MARKS];
    if (!next->event)
        DO(cuEventCreate, &next->event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    DO(cuEventRecord, next->event, l->stream);
    next->before = l->marked = l->launched;
    l->count++;
}

/* Waits until the lane has room; some work for the device is always left. */
static void make_room(lane *l)
{
    for (;;) {
        amount queued = less(l->launched, l->done);
        if (l->count < 2 || (queued.ns < queue_limit_ns && queued.launches < QUEUED_LAUNCHES))
            return;
        DO(cuEventSynchronize, l->marks[l->first].event);
        pass_first(l);
        reap(l);
    }
}

static void launched(lane *l, amount more)
{
    l->launched = plus(l->launched, more);
    amount unmarked = less(l->launched, l->marked);
    if (unmarked.ns >= MARK_EACH_NS || unmarked.launches >= MARK_EACH_LAUNCHES)
        put_mark(l);
}

static amount all_launched(void)
{
    amount sum = {0, 0};
    for (size_t i = 0; i < lane_count; i++)
        sum = plus(sum, lanes[i].launched);
    return sum;
}

static amount all_done(void)
{
    amount sum = {0, 0};
    for (size_t i = 0; i < lane_count; i++) {
        reap(&lanes[i]);
        sum = plus(sum, lanes[i].done);
    }
    return sum;
}

static void begin_ticks(uint64_t start, uint64_t each)
{
    ticks.each = each;
    ticks.next = start + each;
}

/* Prints a line when it is due; a program that waits prints it after the wait. */
static void tick(void)
{
    uint64_t time;
    if (!ticks.each || (time = now()) < ticks.next)
        return;
    amount done = all_done();
    printf("{\"t_ns\": %llu, \"pid\": %d, \"completed\": %llu, \"work_ns\": %llu}\n",
           (unsigned long long)time, (int)getpid(), (unsigned long long)done.launches,
           (unsigned long long)done.ns);
    fflush(stdout);
    ticks.next += ((time - ticks.next) / ticks.each + 1) * ticks.each;
}
