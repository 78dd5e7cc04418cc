/* Kernels that last a known time: `spin_500us` lasts 500 us.
 *
  * On a real card the kernel spins by the global timer or, if the number of rounds per microsecond is
  * given, for that many rounds. Only the second is work: a kernel that reads the time is done after
  * 500 us even if the driver has run another process for half of them. The stub computes nothing and
  * takes the duration from the name. */
#pragma once
#include <stdio.h>
#include <stdlib.h>

static const char *const spin_head = ".version 6.3\n.target sm_75\n.address_size 64\n";

/* The loop's value is never equal to what it is compared with, but the assembler cannot know that. */
static const char *const spin_entry =
    "\n.visible .entry spin_%uus(.param .u64 rounds)\n"
    "{\n"
    "    .reg .u64 %%start, %%time, %%passed, %%left, %%value;\n"
    "    .reg .pred %%timed, %%again, %%never;\n"
    "    ld.param.u64 %%left, [rounds];\n"
    "    mov.u64 %%start, %%globaltimer;\n"
    "    mov.u64 %%value, %%left;\n"
    "    setp.eq.u64 %%timed, %%left, 0;\n"
    "    @%%timed bra by_time;\n"
    "by_rounds:\n"
    "    mad.lo.u64 %%value, %%value, 6364136223846793005, 1442695040888963407;\n"
    "    sub.u64 %%left, %%left, 1;\n"
    "    setp.ne.u64 %%again, %%left, 0;\n"
    "    @%%again bra by_rounds;\n"
    "    setp.eq.u64 %%never, %%value, 81985529216486895;\n"
    "    @%%never trap;\n"
    "    ret;\n"
    "by_time:\n"
    "    mov.u64 %%time, %%globaltimer;\n"
    "    sub.u64 %%passed, %%time, %%start;\n"
    "    setp.lt.u64 %%again, %%passed, %u000;\n"
    "    @%%again bra by_time;\n"
    "    ret;\n"
    "}\n";

/* PTX with one such kernel for each of these durations, which are all different. */
static char *spin_ptx(const unsigned *microseconds, size_t count)
{
    enum { ENTRY = 2048 };
    size_t room = (count + 1) * ENTRY;
    char *text = malloc(room);
    int used = text ? snprintf(text, room, "%s", spin_head) : 0;
    for (size_t i = 0; text && i < count; i++)
        used += snprintf(text + used, room - (size_t)used, spin_entry, microseconds[i], microseconds[i]);
    return text;
}
