/* Kernels that last a known time: `spin_500us` lasts 500 us, `meet_500us_meets2_streams` as long once
 * another one runs that it waits for.
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
#define SPIN_REGISTERS                                                                               \
    "    .reg .u64 %%start, %%time, %%passed, %%left, %%value;\n"                                    \
    "    .reg .pred %%timed, %%again, %%never;\n"
#define SPIN_BODY                                                                                    \
    "    ld.param.u64 %%left, [rounds];\n"                                                           \
    "    mov.u64 %%start, %%globaltimer;\n"                                                          \
    "    mov.u64 %%value, %%left;\n"                                                                 \
    "    setp.eq.u64 %%timed, %%left, 0;\n"                                                          \
    "    @%%timed bra by_time;\n"                                                                    \
    "by_rounds:\n"                                                                                  \
    "    mad.lo.u64 %%value, %%value, 6364136223846793005, 1442695040888963407;\n"                   \
    "    sub.u64 %%left, %%left, 1;\n"                                                               \
    "    setp.ne.u64 %%again, %%left, 0;\n"                                                          \
    "    @%%again bra by_rounds;\n"                                                                  \
    "    setp.eq.u64 %%never, %%value, 81985529216486895;\n"                                         \
    "    @%%never trap;\n"                                                                           \
    "    ret;\n"                                                                                     \
    "by_time:\n"                                                                                    \
    "    mov.u64 %%time, %%globaltimer;\n"                                                           \
    "    sub.u64 %%passed, %%time, %%start;\n"                                                       \
    "    setp.lt.u64 %%again, %%passed, %u000;\n"                                                    \
    "    @%%again bra by_time;\n"                                                                    \
    "    ret;\n"                                                                                     \
    "}\n"

static const char *const spin_entry =
    "\n.visible .entry spin_%uus(.param .u64 rounds)\n"
    "{\n" SPIN_REGISTERS SPIN_BODY;

/* Writes its turn into `mine`, and waits until `theirs` has it too. It waits at most 4 s, so that it
 * never holds the card: then it writes the turn behind `mine`. The stub knows what the name means. */
static const char *const meet_entry =
    "\n.visible .entry meet_%uus_meets2_streams(.param .u64 rounds, .param .u64 mine,\n"
    "    .param .u64 theirs, .param .u64 turn)\n"
    "{\n" SPIN_REGISTERS
    "    .reg .u64 %%mine, %%theirs, %%turn, %%seen;\n"
    "    .reg .pred %%met;\n"
    "    ld.param.u64 %%mine, [mine];\n"
    "    ld.param.u64 %%theirs, [theirs];\n"
    "    ld.param.u64 %%turn, [turn];\n"
    "    mov.u64 %%start, %%globaltimer;\n"
    "    st.volatile.global.u64 [%%mine], %%turn;\n"
    "    membar.sys;\n"
    "waiting:\n"
    "    ld.volatile.global.u64 %%seen, [%%theirs];\n"
    "    setp.ge.u64 %%met, %%seen, %%turn;\n"
    "    @%%met bra work;\n"
    "    mov.u64 %%time, %%globaltimer;\n"
    "    sub.u64 %%passed, %%time, %%start;\n"
    "    setp.lt.u64 %%again, %%passed, 4000000000;\n"
    "    @%%again bra waiting;\n"
    "    st.volatile.global.u64 [%%mine+8], %%turn;\n"
    "    membar.sys;\n"
    "    ret;\n"
    "work:\n" SPIN_BODY;

/* PTX with one such kernel for each of these durations, which are all different. */
static char *spin_ptx(const char *entry, const unsigned *microseconds, size_t count)
{
    enum { ENTRY = 4096 };
    size_t room = (count + 1) * ENTRY;
    char *text = malloc(room);
    int used = text ? snprintf(text, room, "%s", spin_head) : 0;
    for (size_t i = 0; text && i < count; i++)
        used += snprintf(text + used, room - (size_t)used, entry, microseconds[i], microseconds[i]);
    return text;
}
