// build: -ldl
/* A program below a chain of preloaded definitions. Each wrapper adds 10, and each call goes through the
 * whole chain. */
#include <dlfcn.h>
#include "trace.h"

int main(void)
{
    int (*subject)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "subject");
    SAY("subject() = %d", subject());
    SAY("subject() = %d", subject());
    return 0;
}
