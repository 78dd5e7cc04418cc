// build: -ldl
/* A program below a chain of preloaded definitions: each wrapper adds 10, and each call walks the
 * chain again. */
#include <dlfcn.h>
#include "trace.h"

int main(void)
{
    int (*subject)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "subject");
    SAY("subject() = %d", subject());
    SAY("subject() = %d", subject());
    return 0;
}
