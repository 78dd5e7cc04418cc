// build: -ldl
/* Opens $RUNPATH_LIBRARY, which opens its own neighbour. */
#include <dlfcn.h>
#include "trace.h"

int main(void)
{
    void *library = dlopen(getenv("RUNPATH_LIBRARY"), RTLD_NOW);
    int (*call_sibling)(void) = (int (*)(void))dlsym(library, "call_sibling");
    SAY("call_sibling() = %d", call_sibling());
    return 0;
}
